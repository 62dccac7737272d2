"""A job that would never end is ended after a number of steps, on both ranks together."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from runs import Captured, forked, good_run, script

from ddprof.capture.trial import held_parameters

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Captured]:
    """Runs of eleven steps with the phase timers of both kinds; the script's output lies beside them."""
    options = ("--skip", "2", "--steps", "2", "--end-after", "11")
    places = {native: tmp_path_factory.mktemp("ended") for native in ("1", "0")}
    jobs = {native: forked("endless.py", str(out)) for native, out in places.items()}
    return {native: good_run(places[native], job, *options, DDPROF_NATIVE=native) for native, job in jobs.items()}


@pytest.mark.parametrize("native", ["1", "0"])
def test_ranks_end_between_the_same_steps_and_the_script_cleans_up(ended: dict[str, Captured], native: str) -> None:
    run = ended[native]
    assert [side["trial"]["steps"] for side in run.sidecars] == [11, 11]
    assert [side["steps_total"] for side in run.sidecars] == [11, 11]
    assert [side["state"] for side in run.sidecars] == ["exit", "exit"] and sorted(run.traces) == [0, 1]
    assert {side["stacks"]["collector"] for side in run.sidecars} == {"native" if native == "1" else "thread"}
    for rank in (0, 1):  # peers were there for a collective in `finally`, the groups still for what runs at exit
        assert (run.folder.parent / f"rank{rank}").read_text().split("\n")[:2] == ["finally 2", "atexit True"]
        assert [step["index"] for step in run.sidecars[rank]["steps"]] == list(range(11))
    assert run.sidecars[0]["trial"]["loss"] > 0 and run.manifest["options"]["end_after"] == 11
    digests = [side["trial"]["parameters"]["digest"] for run in ended.values() for side in run.sidecars]
    assert len(digests) == 4 and len(set(digests)) == 1


@pytest.mark.slow
def test_torchrun_ends_well(tmp_path: Path) -> None:
    run = good_run(tmp_path, script("endless.py", str(tmp_path)), "--end-after", "4")
    assert [side["trial"]["steps"] for side in run.sidecars] == [4, 4]


def _held(*tensors: Any) -> dict[str, Any]:
    return held_parameters([SimpleNamespace(param_groups=[{"params": list(tensors)}])])


def _tensors(dtype: Any) -> Any:
    return torch.arange(1.0, 25.0).reshape(2, 3, 4).to(dtype)


@pytest.mark.parametrize("name", ["float32", "float64", "bfloat16", "float16", "complex64", "float8_e4m3fn"])
def test_one_element_that_differs_gives_another_digest(name: str) -> None:
    dtype = getattr(torch, name)
    before, after = _tensors(dtype), _tensors(dtype)
    assert _held(before)["digest"] == _held(after)["digest"]
    after[1, 2, 3] = _tensors(dtype)[0, 0, 0]
    assert _held(before)["digest"] != _held(after)["digest"]


def test_another_order_gives_another_digest_and_values_not_in_a_row_are_read_once() -> None:
    first, second = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 1.0, 3.0])
    assert len({_held(*pair)["digest"] for pair in ((first, second), (second, first), (first, first))}) == 3
    laid = torch.arange(24.0).reshape(2, 3, 4)
    found = _held(laid.transpose(0, 2), laid)
    assert found["tensors"] == 2 and found["size_bytes"] == 2 * 24 * 4 and _held(laid, laid) == _held(laid)


def test_a_chunk_after_the_first_counts_too_and_the_sample_is_small_and_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = [torch.full((100,), float(n)) for n in range(1000)]
    tensors[0][0] = float("nan")
    found = _held(*tensors)
    assert found["sample"] == _held(*tensors)["sample"] and len(found["sample"]) <= 256 * 16
    assert found["sample"][0] == 0.0
    assert _held() == {"tensors": 0, "size_bytes": 0, "digest": _held()["digest"], "sample": []}
    whole = _held(torch.arange(100.0))["digest"]
    monkeypatch.setattr("ddprof.capture.trial._CHUNK", 7)
    assert _held(torch.arange(100.0))["digest"] == whole
    changed = torch.arange(100.0)
    changed[99] = 0
    assert _held(changed)["digest"] != whole
