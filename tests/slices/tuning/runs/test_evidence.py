"""Evidence of a run: step times of the job, reasons of failures, memory, and equality of what two runs trained."""

import json
from pathlib import Path

import pytest

from ddprof.sidecar.applied import SettingOutcome
from ddprof.slices.tuning.race import compare
from ddprof.slices.tuning.runs import evidence
from ddprof.trials.document import Held, RunPlan

MS = 1_000_000
FAILURES = [
    ("step 1\ntorch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n", 1, "out of memory: torch.Out"),
    ("ValueError: bad shape\n[rank1]: RuntimeError: peer gone\n", 1, "exit code 1: ValueError: bad shape"),
    ("[rank1]: RuntimeError: x\ntorch.distributed.elastic.ChildFailedError: \n", 1, "exit code 1: RuntimeError: x"),
    ("", 137, "exit code 137 (killed: out of memory?)"),
    ("fine\n", 3, "exit code 3"),
]


def _rank(folder: Path, rank: int, ends_ms: list[float], **more: object) -> None:
    steps = [{"index": n, "start_ns": 0, "end_ns": int(end * MS), "data_ns": 1} for n, end in enumerate(ends_ms)]
    (folder / f"rank{rank}.h.1.0.sidecar.json").write_text(json.dumps({"rank": rank, "steps": steps, **more}))


def test_a_step_lasts_from_the_last_rank_to_the_last_rank_whatever_clocks_say(tmp_path: Path) -> None:
    _rank(tmp_path, 0, [10, 20, 30, 45, 50])
    _rank(tmp_path, 1, [12, 18, 33, 40, 60, 70])
    ranks = evidence.ranks_left(tmp_path)
    assert evidence.job_steps_us(ranks, RunPlan(1, 4)) == [8000.0, 13000.0, 12000.0, 15000.0]
    assert evidence.job_steps_us(ranks, RunPlan(3, 9)) == [12000.0, 15000.0]
    assert evidence.steps_made(ranks) == 5 and evidence.steps_made([]) == 0
    _rank(tmp_path, 0, [10, 20, 30, 40])
    _rank(tmp_path, 1, [1_000_010, 1_000_020, 1_000_030, 1_000_040])
    assert evidence.job_steps_us(evidence.ranks_left(tmp_path), RunPlan(1, 3)) == [10_000.0] * 3


def test_one_hiccup_in_twenty_steps_is_left_out_and_what_occurs_more_often_counts() -> None:
    assert evidence.run_step_us([*[100.0] * 39, 9e6]) == pytest.approx(100.0)
    often = [1100.0 if n % 5 == 0 else 100.0 for n in range(40)]
    assert evidence.run_step_us(often) == pytest.approx(100 + 6 * 1000 / 38)
    assert evidence.run_step_us([100.0] * 7) is None and evidence.run_step_us([]) is None


def test_a_rank_holds_after_the_planned_steps_and_of_many_every_digest_and_few_values_stay(tmp_path: Path) -> None:
    ended = {"steps": 5, "loss": 0.5, "parameters": {"digest": "a", "sample": [1.0]}, "took_ns": 1}
    _rank(tmp_path, 0, [1, 2, 3], trial=ended)
    _rank(tmp_path, 1, [1, 2, 3], trial=None)
    ranks = evidence.ranks_left(tmp_path)
    assert set(evidence.held_by_rank(ranks, RunPlan(2, 3))) == {"0"}
    assert evidence.held_by_rank(ranks, RunPlan(2, 4)) == {}
    for rank in range(20):
        _rank(tmp_path, rank, [1, 2, 3], trial={"steps": 5, "parameters": {"digest": f"d{rank}", "sample": [1.0]}})
    held = evidence.held_by_rank(evidence.ranks_left(tmp_path), RunPlan(2, 3))
    assert len(held) == 20 and held["19"].digest == "d19" and sum(bool(one.sample) for one in held.values()) == 8


def test_damaged_sidecars_and_earlier_starts_are_left_out(tmp_path: Path) -> None:
    _rank(tmp_path, 0, [1, 2, 3])
    (tmp_path / "rank1.h.1.0.sidecar.json").write_text("{")
    (tmp_path / "rank0.h.2.1.sidecar.json").write_text('{"rank": 0, "restart": 1, "steps": []}')
    (only,) = evidence.ranks_left(tmp_path)
    assert only.restart == 1 and evidence.manifest_of(tmp_path) == evidence.RunManifest()


def test_memory_is_that_of_the_rank_with_least_to_spare(tmp_path: Path) -> None:
    for rank, peak in ((0, 30), (1, 70)):
        _rank(tmp_path, rank, [1], device={"total_memory_bytes": 100}, allocator={"peak_reserved_bytes": peak})
    assert evidence.memory(evidence.ranks_left(tmp_path)) == (70, 100)
    _rank(tmp_path, 0, [1], device={"kind": "cpu"}, allocator=None)
    assert evidence.memory(evidence.ranks_left(tmp_path)[:1]) == (None, None)


@pytest.mark.parametrize(("log", "code", "words"), FAILURES)
def test_a_failure_has_a_reason_in_a_line(tmp_path: Path, log: str, code: int, words: str) -> None:
    (tmp_path / "log").write_text(log)
    assert evidence.reason(tmp_path / "log", code).startswith(words)
    assert evidence.reason(tmp_path / "none", 2) == "exit code 2"


def test_a_fix_of_which_nothing_was_applied_is_told_with_the_reason() -> None:
    told = (("pin_memory", False, "there is no accelerator"), ("num_workers", True, ""))
    told = (*told, ("num_workers", False, "an iterable data set"))
    rows = [SettingOutcome(name, 1, applied=applied, why=why) for name, applied, why in told]
    assert evidence.not_applied(rows, {"pin_memory": True}) == "there is no accelerator"
    assert evidence.not_applied(rows, {"num_workers": 4, "pin_memory": True}) == ""
    assert evidence.not_applied((), {"num_workers": 4}) == ""


def _held(digest: str, *sample: float, loss: float | None = None) -> dict[str, Held]:
    return {str(rank): Held(f"{digest}{rank}", sample, loss) for rank in (0, 1)}


def test_the_same_bits_are_the_same_and_others_differ_where_the_baseline_repeats_itself() -> None:
    assert compare(_held("a", 1.0), [_held("b", 1.1), _held("a", 1.0)]).kind == "same"
    assert compare({**_held("a", 1.0), "1": Held("z", (1.0,))}, [_held("a", 1.0)] * 2).kind == "differs"
    judged = compare(_held("b", 3.0, 4.5, loss=0.2), [_held("a", 3.0, 4.0, loss=0.1)] * 2)
    assert judged.kind == "differs" and judged.baseline_distance == 0.0 and judged.loss == (0.2, 0.1)
    assert judged.distance == pytest.approx(0.1)


def test_a_baseline_that_varies_is_the_measure_and_one_alone_tells_nothing() -> None:
    baselines = [_held("a", 1.0, 0.0), _held("b", 1.001, 0.0)]
    assert compare(_held("c", 1.004, 0.0), baselines).kind == "like_baseline"
    assert compare(_held("c", 1.2, 0.0), baselines).kind == "differs"
    assert compare(_held("c", 1.2), baselines).kind == "differs"  # other tensors
    assert compare(_held("b", 1.0), [_held("a", 1.0)]).kind == "unknown"
    assert compare({}, [_held("a", 1.0)]).kind == compare(_held("a"), []).kind == "unknown"
    # Parameters that have diverged have a distance too.
    judged = compare(_held("c", 2e200), [_held("a", 1e200), _held("b", 3e200)])
    assert judged.kind == "like_baseline" and judged.distance == pytest.approx(1 / 3)
