"""Records that remain of a job that ran in turns."""

import json
from pathlib import Path
from typing import Any

from benchmarks.workload_pairs.kept_records import keep_turns


def step(index: int, start_ns: int, profiled: bool = False) -> dict[str, Any]:
    return {"index": index, "start_ns": start_ns, "end_ns": start_ns + 10, "profiled": profiled}


def kept(folder: Path, **content: Any) -> Any:
    """A sidecar whose job was traced for two steps, ran two more, was held at 60 and had turns at 100 and 300."""
    steps = [step(0, 0, True), step(1, 10, True), step(2, 20), step(3, 30)]
    held = {**step(4, 40), "end_ns": 104}  # began before it was held
    steps += [held, *(step(5 + i, 104 + 10 * i) for i in range(6)), {**step(11, 164), "end_ns": 310}]
    steps += [step(12 + i, 310 + 10 * i) for i in range(3)]
    path = folder / "rank0.here.1.0.sidecar.json"
    path.write_text(json.dumps({"rank": 0, "steps": steps, "steps_total": len(steps), **content}))
    keep_turns(folder, held_at_ns=60, turns=[(100, 170), (300, 340)], period=2)
    return json.loads(path.read_text())


def test_whole_periods_of_each_turn_stay_beside_the_window_and_the_step_after_it(tmp_path: Path) -> None:
    told = kept(tmp_path)
    # Of steps 5 to 10 the first is left out and four are two periods; of 12 to 14 it leaves one period.
    assert [s["index"] for s in told["steps"]] == [0, 1, 2, 6, 7, 8, 9, 13, 14]
    assert told["steps_total"] == 9 and told["rank"] == 0


def test_pauses_outside_these_steps_go_and_other_lists_stay(tmp_path: Path) -> None:
    starts = {5: True, 25: True, 35: False, 101: False, 115: True, 175: False, 325: True, 312: False}
    gc = [{"start_ns": start, "dur_ns": 4} for start in starts]
    told = kept(tmp_path, gc=gc, batches=[{"step": 5}], notes=["held"], checkpoints=[])
    assert [pause["start_ns"] for pause in told["gc"]] == [start for start, stays in starts.items() if stays]
    assert (told["batches"], told["notes"], told["checkpoints"]) == ([{"step": 5}], ["held"], [])


def test_a_fetch_that_was_held_goes_and_so_does_half_a_line(tmp_path: Path) -> None:
    fetches = [{"worker": 0, "start_ns": start, "dur_ns": 20} for start in (10, 50, 101, 165, 305)]
    lines = [json.dumps(fetch) + "\n" for fetch in fetches]
    log = tmp_path / "rank0.here.1.0.workers.jsonl"
    log.write_text("".join(lines) + '{"worker": 0, "start')
    kept(tmp_path)
    assert log.read_text() == lines[0] + lines[2] + lines[4]
