"""Values of a setting that are tried."""

from types import SimpleNamespace

import pytest

from ddprof.findings import Abstention, Finding, Fix, Recoverable
from ddprof.settings.catalogue import Value
from ddprof.slices.tuning import candidates as module
from ddprof.slices.tuning.candidates import candidates
from ddprof.slices.tuning.search import Search
from ddprof.trials.document import NOTHING, UNDECIDED, Predicted


def _run(*fixes: Fix, workers: int | None = 0, monkeypatch: pytest.MonkeyPatch):
    """A run of one finding, whose settings nothing is predicted of but the finding's own price."""
    finding = Finding("input.starved", "late", (), 50.0, Recoverable(50.0, 40.0, 60.0), 0.9, fixes=fixes)
    steps = SimpleNamespace(wall_us=100.0, unprofiled_us=None)
    report = SimpleNamespace(ranked_findings=lambda: [finding], severity_of=lambda _: "critical", steps=steps)
    report.abstentions = ()
    loader, ddp = SimpleNamespace(num_workers=workers), SimpleNamespace(bucket_cap_mb=0.5)
    settings = SimpleNamespace(loader=loader, ddp=ddp, processors=None)
    monkeypatch.setattr(module, "_replayed", lambda run, name, value: None)
    return SimpleNamespace(report=report, measures=SimpleNamespace(settings=settings), pricer=None)


def _fix(at: tuple[str, ...] = ("train.py:7",), **values: Value) -> Fix:
    return Fix("a setting", "another", "because", "a source", applies=tuple(values.items()), at=at)


def _names(run, *only: str, allow_numerics: bool = False) -> list[str]:
    return [candidate.name for candidate in candidates(run, only, allow_numerics).candidates]


def test_half_and_twice_of_a_suggested_number_are_tried_but_not_what_the_run_had(monkeypatch) -> None:
    run = _run(_fix(num_workers=4, persistent_workers=True), monkeypatch=monkeypatch)
    assert _names(run) == [f"num_workers={n}, persistent_workers=true at train.py:7" for n in (4, 8, 2)]
    had_two = _run(_fix(num_workers=4), workers=2, monkeypatch=monkeypatch)
    assert _names(had_two) == ["num_workers=4 at train.py:7", "num_workers=8 at train.py:7"]
    one = _run(_fix(num_workers=1), monkeypatch=monkeypatch)
    assert _names(one) == ["num_workers=1 at train.py:7", "num_workers=2 at train.py:7"]


def test_a_fix_that_the_finding_is_not_priced_for_has_a_prediction_of_its_own(monkeypatch) -> None:
    run = _run(_fix(forward_prefetch_units=1), _fix(reshard_after_forward=False), monkeypatch=monkeypatch)
    monkeypatch.setattr(module, "_replayed", lambda run, name, value: Predicted(0.2, 0.1, 0.3, f"{name}={value}"))
    first, second = candidates(run, (), False).candidates
    assert (first.predicted.share, first.predicted.by) == (0.5, "finding")
    assert second.predicted.by == "reshard_after_forward=False"


def test_what_a_recording_is_not_believed_on_is_told_and_leaves_the_answer_open(monkeypatch) -> None:
    run = _run(_fix(num_workers=4), monkeypatch=monkeypatch)
    withdrawn = Abstention("comm.latency_bound", "the machine is busy", is_withdrawn=True)
    run.report.abstentions = (Abstention("host.gc", "not recorded"), withdrawn)
    found = candidates(run, (), False)
    assert found.left_out == (("what comm.latency_bound would ask for", "the machine is busy"),)
    assert found.is_doubtful and Search(is_doubtful=True).verdict == UNDECIDED and Search().verdict == NOTHING


def test_values_of_one_thing_are_one_group_and_the_suggested_one_is_known(monkeypatch) -> None:
    run = _run(_fix(bucket_cap_mb=25.0), _fix((), gc_interval=1000), monkeypatch=monkeypatch)
    found = candidates(run, (), False).candidates
    told = {candidate.name: (candidate.group, candidate.is_variant) for candidate in found}
    buckets = {f"bucket_cap_mb={mib} at train.py:7": ("0", mib != 25.0) for mib in (25.0, 50.0, 12.5)}
    assert told == {**buckets, "gc_interval=1000": ("1", False)}
    assert found[0].predicted.share == 0.5 and found[0].fix.values == {"bucket_cap_mb": 25.0}


def test_only_some_settings_and_those_that_change_numbers_only_if_allowed(monkeypatch) -> None:
    run = _run(_fix(num_workers=1), _fix((), tf32=True), monkeypatch=monkeypatch)
    assert "tf32=true" not in _names(run) and "tf32=true" in _names(run, allow_numerics=True)
    assert _names(run, "tf32", allow_numerics=True) == ["tf32=true"]
    left = dict(candidates(run, ("gc_interval",), False).left_out)
    assert left == {"num_workers=1 at train.py:7": "not among --only", "tf32=true": "not among --only"}
    assert "precision" in dict(candidates(run, (), False).left_out)["tf32=true"]
