"""The manifests of a run, and what of them belongs to a rank."""

import json
from pathlib import Path
from typing import Any

import pytest
from reading import EVENTS, traces, written_rank

from ddprof.readers.side_files.manifests import Launch, RunEnd, launch_of, read_hardware, read_step_times, run_end
from ddprof.sidecar import GpuTally, HostHardware, Sidecar, StepMedians, Topology

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
    ranks = sorted(traces(folder), key=lambda trace: trace.identity.rank or 0)
    return [trace.sidecar.hardware for trace in ranks]


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


LAUNCHED = (['{"command": "python \'a b.py\'", "cwd": "/x", "host": "h"}'], Launch("python 'a b.py'", "/x"))
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
    assert run_end(str(tmp_path)) == RunEnd(134, None, {"seen_ns": 5})


@pytest.mark.parametrize("content", ["", "{", "[1]", "\x00"])
def test_a_damaged_manifest_says_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    assert run_end(str(tmp_path)) in (None, RunEnd())
