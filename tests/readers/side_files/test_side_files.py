"""Side files of a rank: sidecars, manifests, stacks, fetches; as capture writes them, and the rest of damaged ones."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import kineto_text as kt
import numpy as np
import pytest
from msgspec.structs import replace
from reading import BASE_NS, EVENTS, one_trace, traces, written_rank

from ddprof.model import HealthNote, Kind
from ddprof.readers.files.streams import MAX_SMALL_BYTES
from ddprof.readers.side_files import stacks, workers
from ddprof.readers.side_files.lenient import read_sidecar
from ddprof.readers.side_files.manifests import Manifest, launch_of, read_hardware, read_step_times, run_end
from ddprof.readers.side_files.stacks import SampledProcess, read_stacks, side_files
from ddprof.readers.side_files.workers import read_fetches, summary
from ddprof.sidecar import (
    Fetch,
    GpuTally,
    HostHardware,
    LoaderSettings,
    Pause,
    SamplerSettings,
    Sidecar,
    StepMedians,
    StepTimes,
    TimedFetches,
    Topology,
)


def read(tmp_path: Path, content: str | dict[str, Any]) -> tuple[Sidecar, list[HealthNote]]:
    """The sidecar read from a file with this content, and the notes on it."""
    path = tmp_path / "rank0.sidecar.json"
    path.write_text(content if isinstance(content, str) else json.dumps({"schema": "ddprof.run/1", **content}))
    return read_sidecar(str(path))


def test_null_absent_and_unknown_keys_and_values_of_another_type_are_missing(tmp_path: Path) -> None:
    found, notes = read(tmp_path, {"ddp": None, "nccl": None, "colour": {"red": 1}, "steps": []})
    assert (found, notes) == (Sidecar(schema="ddprof.run/1"), []) and found.is_captured
    assert read_sidecar(None) == (Sidecar(), [])
    found, _ = read(tmp_path, {"optimizer": {"class": "AdamW"}, "dataloader": {"sampler": {"class": "S"}}})
    assert (found.optimizer.name, found.loader.known()) == ("AdamW", {"sampler.class": "S"})
    loader = {"num_workers": "two", "batch_size": 8, "sampler": {"sharded": False, "class": None}}
    pauses = [{"start_ns": 1, "dur_ns": 2}, {"start_ns": 3, "dur_ns": None}, 5, {"start_ns": 2**70, "dur_ns": 1}]
    found, notes = read(tmp_path, {"dataloader": loader, "gc": pauses, "steps": 7, "rank": 3})
    assert found.dataloader == LoaderSettings(batch_size=8, sampler=SamplerSettings(sharded=False))
    assert (found.gc, found.steps, found.rank) == ((Pause(1, 2),), (), 3)
    (note,) = notes
    assert "rank0.sidecar.json: dataloader.num_workers, steps, gc[1] and 3 more not of the type" in note.issue
    steps = [{"index": 0, "start_ns": 0, "end_ns": 9}, {"index": True, "start_ns": 9, "end_ns": 8}, None]
    found, _ = read(tmp_path, {"steps": steps})
    assert found.steps == (StepTimes(index=0, start_ns=0, end_ns=9), StepTimes(start_ns=9, end_ns=8))
    assert [step.length_ns for step in found.steps] == [9, None]
    found, (note,) = read(tmp_path, {"rank": 10**9, "world_size": -1, "gc": [{"start_ns": 1, "dur_ns": 2**63 - 1}]})
    assert (found.rank, found.world_size, found.gc) == (None, None, ()) and "rank, world_size, gc[0]" in note.issue


IMPOSSIBLE = {f'"ddp": {{"bucket_cap_mb": {odd}}}': Sidecar(schema="a") for odd in ("NaN", "1e999")}
IMPOSSIBLE['"host": "x\\ud800"'] = Sidecar(schema="a", host="x?")


@pytest.mark.parametrize(("content", "expected"), IMPOSSIBLE.items())
def test_what_no_file_can_hold_is_not_taken_over(tmp_path: Path, content: str, expected: Sidecar) -> None:
    assert read(tmp_path, f'{{"schema": "a", {content}}}')[0] == expected


@pytest.mark.parametrize("content", ["[]", "{", "", "[" * 100_000, '{"schema": "a", "x": ' + "[" * 100_000])
def test_a_file_that_cannot_be_used_is_a_note(tmp_path: Path, content: str) -> None:
    found, (note,) = read(tmp_path, content)
    assert found == Sidecar() and note.effect == "settings of this rank are unknown"


def test_a_file_that_unpacks_to_more_than_any_sidecar_or_holds_other_things_is_none(tmp_path: Path) -> None:
    path = tmp_path / "rank0.sidecar.json"
    path.write_bytes(gzip.compress(bytes(MAX_SMALL_BYTES + 1), 1))
    found, (note,) = read_sidecar(str(path))
    assert found == Sidecar() and "unpacks to more than 32 MiB" in note.issue
    found, (note,) = read(tmp_path, {"gc": [[]] * 20_000})
    assert found == Sidecar() and "more than 10000 values are not of the type documented" in note.issue


UUID = "6ac9dd8a-22b2"


def run_of(tmp_path: Path, **manifests: Any) -> Path:
    """Two ranks on two hosts; `manifests`: file name with _ for . -> content."""
    for rank, host in enumerate(("a", "b")):
        written_rank(tmp_path / f"rank{rank}.{host}.{7 + rank}.0", rank, 2, EVENTS, device={"uuid": UUID})
    for name, content in manifests.items():
        text = content if isinstance(content, str) else json.dumps({"schema": "ddprof.run/1", **content})
        (tmp_path / name.replace("_", ".")).write_text(text)
    return tmp_path


def hardware(folder: Path) -> list[HostHardware]:
    return [trace.sidecar.hardware for trace in sorted(traces(folder), key=lambda trace: trace.identity.rank or 0)]


def test_each_rank_gets_its_hosts_topology_and_its_own_gpu(tmp_path: Path) -> None:
    gpus = [{"index": 0, "uuid": "GPU-0000"}, {"index": 1, "uuid": f"GPU-{UUID.upper()}", "busy_samples": 5}]
    near, far = {"links": {"GPU0-GPU1": "NV18"}}, {"links": {"GPU0-GPU1": "SYS"}}
    of_b, of_a = {"host": "b", "topology": near, "gpus": gpus}, {"host": "a", "topology": far, "gpus": gpus[:1]}
    first, second = hardware(run_of(tmp_path, manifest_json=of_b, manifest_a_99_json=of_a))
    assert first == HostHardware(Topology(**far))  # its GPU is not among those sampled
    assert second == HostHardware(Topology(**near), GpuTally(index=1, uuid=f"GPU-{UUID.upper()}", busy_samples=5))


def test_manifests_of_a_run_that_still_runs_or_is_broken_or_says_nonsense(tmp_path: Path) -> None:
    broken = '{"schema":"ddprof.run/1","host":"a","topology":'
    assert hardware(run_of(tmp_path, manifest_json={"host": "b"}, manifest_a_1_json=broken)) == [HostHardware()] * 2
    folder = run_of(tmp_path, manifest_json={"host": "a", "topology": [], "gpus": {"uuid": UUID}})
    assert read_hardware([str(folder / "manifest.json")], Sidecar(host="a")) == HostHardware()
    assert read_hardware([str(folder / "gone.json")], Sidecar(host="a")) == HostHardware()


def test_timers_of_all_ranks_that_can_be_read(tmp_path: Path) -> None:
    whole = {"step_ns": 10, "data_ns": 2, "rest_ns": 3, "sleeping_ns": 1}
    times = {"0": whole, "1": {"step_ns": "long"}, "2": 5, "three": whole, "4": {"step_ns": 7, "data_ns": None}}
    folder = run_of(tmp_path, manifest_json={"step_times": times}, manifest_a_1_json={"step_times": {"5": whole}})
    medians = read_step_times(str(folder / name) for name in ("manifest.json", "manifest.a.1.json", "gone.json"))
    timed = StepMedians(step_ns=10, data_ns=2, rest_ns=3)
    assert medians == {0: timed, 4: StepMedians(step_ns=7), 5: timed}


LAUNCHED = (['{"command": "python \'a b.py\'", "cwd": "/x", "host": "h"}'], Manifest("python 'a b.py'", "/x", host="h"))
OF_NONE = [[text] for text in ("", "[]", "{", '{"command": 7}', '{"cwd": "/x"}', '{"command": null}', None)]
OF_NONE += [[], ['{"command": "node 0"}', '{"command": "node 1"}']]  # the last: each node had its own


@pytest.mark.parametrize(("texts", "launch"), [LAUNCHED, *((texts, None) for texts in OF_NONE)])
def test_the_one_command_of_a_run_and_its_folder(tmp_path: Path, texts: list[str | None], launch: Any) -> None:
    paths = {str(tmp_path / f"manifest.{number}.json"): text for number, text in enumerate(texts)}
    for path, text in paths.items():
        Path(path).write_text(text) if text is not None else None
    assert launch_of([*paths] * 2) == launch


def test_the_exit_code_and_the_hang_are_those_of_the_manifest(tmp_path: Path) -> None:
    assert run_end(str(tmp_path)) is None
    (tmp_path / "manifest.json").write_text(json.dumps({"exit_code": 134, "hang": {"seen_ns": 5}, "host": "a"}))
    assert run_end(str(tmp_path)) == Manifest(host="a", exit_code=134, hang={"seen_ns": 5})


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_damaged_manifest_says_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert run_end(str(tmp_path)) in (None, Manifest())


LINES: list[dict[str, Any]] = [
    {"kind": "begin", "phases": ["data", "rest"], "path": ["/job"]},
    {"kind": "frames", "from": 0, "frames": [["", "...", 0], ["/job/train.py", "main", 9]]},
    {"kind": "stacks", "from": 0, "stacks": [[-1, 0], [-1, 1]]},
    {"kind": "threads", "from": 0, "threads": [["MainThread", 77], ["feeds", None]]},
    {"kind": "counts", "counts": [[1, 1, 0, 5, 500, 0, 4], [1, 0, 1, 2, 200, 7]], "cpu_ns": [[0, 9]]},
    {"kind": "samples", "at_ns": 1000, "period_ns": 10, "samples": [[20, 10, 0, 0, 1, 1], [5, 10, 3, 0, 1, 1]]},
    {"kind": "frames", "from": 2, "frames": [["/job/train.py", "evaluate", 20]]},
    {"kind": "stacks", "from": 2, "stacks": [[1, 2]]},
    {"kind": "counts", "counts": [[2, 1, 0, 1, 100, 0]]},
    *({"kind": "last", "threads": [[0, 2]]}, {"kind": "end", "reason": "exit"}),
]


def read_processes(path: Path, lines: list[Any]) -> tuple[list[SampledProcess], list[str]]:
    """Processes of a file of these lines, and the notes on it."""
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))
    processes, notes = read_stacks([str(path)])
    return processes, [note.issue.removeprefix(f"{path}: ") for note in notes]


def read_process(folder: Path, lines: list[Any]) -> tuple[SampledProcess, list[str]]:
    (process,), notes = read_processes(folder / "a.stacks.jsonl", lines)
    return process, notes


def test_all_that_is_written_is_read(tmp_path: Path) -> None:
    process, notes = read_process(tmp_path, LINES)
    assert notes == []
    assert process.frames[2] == ("/job/train.py", "evaluate", 20) and process.stacks == [(-1, 0), (-1, 1), (1, 2)]
    assert process.threads == [("MainThread", 77), ("feeds", None)] and process.phases == ["data", "rest"]
    assert process.counts.tolist() == [[1, 1, 0, 5, 500, 0, 4], [1, 0, 1, 2, 200, 7, 1], [2, 1, 0, 1, 100, 0, 1]]
    assert process.samples.tolist() == [[1005, 3, 1, 10], [1020, 0, 1, 10]]
    # CPython gives -1 as the line of some instructions, of a comprehension for example: that costs no frame.
    frames = {"kind": "frames", "from": 0, "frames": [["", "...", 0], ["/job/train.py", "main", -1]]}
    process, notes = read_process(tmp_path, [LINES[0], frames, *LINES[2:]])
    assert notes == [] and process.frames[1] == ("/job/train.py", "main", 0)


# A dear sample on a busy machine: nine of them in a second, then one that stands for five.
DEAR = ([[1, 1, 0, 9, 900, 0], [2, 1, 0, 1, 5000, 0], [1, 0, 1, 2, 200, 7]], [9 * 590, 590, 200])
# A late answer: the thread was in that call until it answered.
LATE = ([[1, 1, 0, 9, 900, 0], [2, 1, 0, 1, 5100, 5000]], [900, 5100])


@pytest.mark.parametrize(("counts", "times_ns"), [DEAR, LATE], ids=["dear", "late"])
def test_a_sample_after_a_pause_outweighs_no_other_unless_it_was_late(tmp_path: Path, counts, times_ns) -> None:
    process, _ = read_process(tmp_path, [*LINES[:4], *LINES[6:8], {"kind": "counts", "counts": counts}])
    assert process.counts[:, 4].tolist() == times_ns


def test_windows_and_the_start_are_sampled_at_rates_of_their_own(tmp_path: Path) -> None:
    begin = {"kind": "begin", "phases": ["data", "rest", "start-up"], "path": ["/job"]}
    of_window = {"kind": "counts", "from_ns": 1000, "to_ns": 1100, "counts": [[1, 1, 0, 2, 20, 0]]}
    outside = {"kind": "counts", "from_ns": 1100, "to_ns": 9000, "counts": [[1, 1, 0, 3, 300, 0], [2, 2, 0, 1, 900, 0]]}
    process, _ = read_process(tmp_path, [begin, *LINES[1:4], *LINES[5:8], of_window, outside])
    assert process.counts[:, 4].tolist() == [20, 300, 900]


@pytest.mark.parametrize("lost", range(len(LINES)))
def test_a_lost_line_costs_no_more_than_it_says(tmp_path: Path, lost: int) -> None:
    process, notes = read_process(tmp_path, [*LINES[:lost], '{"kind":"cou', *LINES[lost + 1 :]])
    assert notes[0] == "1 unreadable line"
    assert len(process.counts) >= 1 or lost == 4
    assert set(process.counts[:, 0].tolist()) <= set(range(len(process.stacks)))
    assert all(outer < at for at, (outer, _) in enumerate(process.stacks))


ODD_LINES = (
    {"kind": "stacks", "from": 3, "stacks": [[3, 1], [9, 1], [1, 99]]},
    {"kind": "counts", "counts": [[99, 0, 0, 1, 1, 0]]},
    {"kind": "samples", "at_ns": 1, "period_ns": 1, "samples": [[1, 1, 0, 0, 0, 99]]},
    # Values of the wrong kind cost their line.
    *({"kind": "counts", "counts": [row]} for row in ([-1, 0, 0, 1, 1, 0], [1, 0, 0, 1, 1 << 60, 0])),
    {"kind": "samples", "at_ns": float("nan"), "period_ns": 1, "samples": []},
    {"kind": "frames", "from": -5, "frames": [["a", "b", 1]]},
    *({"kind": "frames", "from": 0, "frames": {"a": 1}}, {"kind": "what"}, [], "\x00\xff"),
)


@pytest.mark.parametrize("line", ODD_LINES)
def test_what_names_nothing_or_is_of_the_wrong_kind_is_noted(tmp_path: Path, line: Any) -> None:
    process, (note,) = read_process(tmp_path, [*LINES, line])
    assert note == "1 unreadable line" or (line in ODD_LINES[:3] and "name stacks that are not in it" in note)
    assert len(process.counts) == 3 and len(process.samples) == 2


def test_a_file_that_is_none_or_claims_too_much_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    processes, (note,) = read_stacks([str(tmp_path / "pipe")])
    assert processes == [] and "not a regular file" in note.issue
    far = {"kind": "frames", "from": 1 << 30, "frames": [["a", "b", 1]]}
    for lines, said in (([*LINES, far], "more than 131072 entries"), (LINES, "more than 2 rows")):
        processes, (issue,) = read_processes(tmp_path / "a.stacks.jsonl", lines)
        assert processes == [] and said in issue
        monkeypatch.setattr(stacks, "MAX_ROWS", 2)


def test_only_the_bounded_start_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacks, "MAX_BYTES", len(json.dumps(LINES[0])) + 5)
    _, notes = read_process(tmp_path, LINES)
    assert notes == ["1 unreadable line", "only its first 0 MiB are read"]


def test_files_of_a_rank_and_of_its_workers_are_found(tmp_path: Path) -> None:
    stem = tmp_path / "rank0.h[1].1.0"
    names = [f"{stem}.stacks.jsonl", f"{stem}.worker0.5.stacks.jsonl", f"{stem}.worker1.6.stacks.jsonl"]
    for name in (*names, f"{stem}.workers.jsonl", f"{tmp_path}/rank1.h.2.0.stacks.jsonl"):
        Path(name).touch()
    assert side_files(f"{stem}.sidecar.json") == ([f"{stem}.workers.jsonl"], names)
    assert side_files(f"{tmp_path}/rank9.h.1.0.sidecar.json") == ([], []) == side_files(None)


STEM = "rank0.host.1.0"


def folder_with(tmp_path: Path, lines: list[str]) -> Path:
    """A run of one rank with two steps and these lines of its workers."""
    events = [kt.span(f"ProfilerStep#{n}", 10**6 * n, 10**6, "user_annotation") for n in (1, 2)]
    written_rank(tmp_path / STEM, 0, 1, events)
    (tmp_path / f"{STEM}.workers.jsonl").write_text("\n".join(lines))
    return tmp_path


def fetch(worker: int, start_us: int, dur_us: int, **more: int) -> str:
    line = {"worker": worker, "start_ns": BASE_NS + 1000 * start_us, "dur_ns": 1000 * dur_us, "samples": 4}
    return json.dumps({**line, **more})


def test_spans_near_the_trace_become_lanes(tmp_path: Path) -> None:
    trace = one_trace(folder_with(tmp_path, [fetch(0, 900, 300), fetch(1, 1500, 400), fetch(1, 900_000, 400)]))
    mine = trace.events.take(trace.events["kind"] == Kind.OTHER)
    assert [trace.strings[n] for n in mine["name"]] == ["DataLoader worker: fetch"] * 2
    assert mine["ts_ns"].tolist() == [BASE_NS + 900_000, BASE_NS + 1_500_000]
    assert [trace.tracks["name"][t] for t in mine["track"]] == ["DataLoader worker 0", "DataLoader worker 1"]


def test_few_fetches_that_wait_for_a_cpu_show_in_the_typical_one(tmp_path: Path) -> None:
    """The median fetch of five waits for nothing."""
    waits = [0, 0, 0, 0, 300_000, 300_000]
    lines = [fetch(0, 1000 * n, 100 + wait // 1000, waited_ns=wait) for n, wait in enumerate(waits)]
    fetches, _ = read_fetches(side_files(str(folder_with(tmp_path, lines) / f"{STEM}.sidecar.json"))[0], Sidecar())
    timed = summary(fetches)
    assert timed is not None and timed.fetch_ns == 100_000
    assert timed.waited_ns == pytest.approx(100_000 * 600 / (5 * 100 + 600), abs=1)


def test_cost_leaves_out_each_workers_start_and_fetches_of_the_training_process_are_its_own(tmp_path: Path) -> None:
    cost = {"cpu_ns": 90_000, "collate_ns": 10_000, "waited_ns": 4_000}
    lines = [fetch(w, 1000 * n, 5_000 if n == 0 else 100, **cost) for n in range(4) for w in (0, 1)]
    folder = folder_with(tmp_path, [*lines, '{"worker": 0, "st'])
    fetches, notes = read_fetches(side_files(str(folder / f"{STEM}.sidecar.json"))[0], Sidecar())
    timed = summary(fetches)
    assert timed is not None
    assert [(span.worker, span.dur_ns) for span in timed.spans] == [(0, 100_000), (1, 100_000)] * 3
    assert replace(timed, spans=()) == TimedFetches(2, 100_000, 4, (100_000,) * 20, **cost)
    assert ["1 unreadable" in note.issue for note in notes] == [True]
    own = tuple(Fetch(start_ns=n, dur_ns=50, cpu_ns=20, collate_ns=5, samples=2) for n in range(3))
    fetches, _ = read_fetches([], Sidecar(fetches=own))
    timed = summary(fetches)
    assert timed is not None and timed.waited_ns is None
    assert (timed.workers, timed.fetch_ns, timed.samples) == (0, 50, 2) and summary(np.empty((0, 7), np.int64)) is None


def test_a_file_that_is_none_or_too_long_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rank0.workers.jsonl"
    for make, words in ((os.mkfifo, "a named pipe"), (Path.touch, ""), (Path.unlink, "No such file")):
        make(path)
        rows, notes = read_fetches([str(path)], Sidecar())
        assert len(rows) == 0 and all(words in note.issue for note in notes) and bool(words) == bool(notes)
        path.unlink(missing_ok=True) if make is os.mkfifo else None
    path.write_text("\n".join([fetch(0, 1, 1)] * 3))
    monkeypatch.setattr(workers, "MAX_RECORDS_BYTES", len(fetch(0, 1, 1)))
    rows, (note,) = read_fetches([str(path)], Sidecar())
    assert len(rows) == 1 and "only its first" in note.issue


@pytest.mark.parametrize("value", ["Infinity", "NaN", "-1", "1" + "0" * 30, "[]", '"x"', "[" * 5000, "null"])
def test_a_duration_that_is_none_costs_its_line(tmp_path: Path, value: str) -> None:
    path = tmp_path / "rank0.workers.jsonl"
    path.write_text(f'{fetch(0, 1, 1)}\n{{"dur_ns": {value}}}\n')
    rows, (note,) = read_fetches([str(path)], Sidecar())
    assert len(rows) == 1 and "1 unreadable line" in note.issue
