"""The fixes of a report as a file that `ddprof run --apply` takes."""

from dataclasses import replace

from ddprof.findings import Finding, Fix, Recoverable
from ddprof.report.fixes import applicable, fixes_file, mends_first
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.model import Ledger, Report, RunInfo, Steps, Verdict
from ddprof.settings.fixes_file import parse_fixes

PLACE = ("train.py:57",)


def _fix(applies: dict[str, bool | int | float | str], at: tuple[str, ...] = PLACE) -> Fix:
    return Fix("setting", "value", "why", "source", applies=tuple(applies.items()), at=at)


def _report(*told: tuple[float, tuple[Fix, ...]]) -> Report:
    findings = tuple(
        Finding(f"kind.number{number}", "summary", (), gain, Recoverable(gain, gain, gain), 0.9, fixes=fixes)
        for number, (gain, fixes) in enumerate(told)
    )
    run, steps = RunInfo(2, (0, 1), name="r"), Steps(3, "profiler_step", 100.0)
    return Report(run, steps, Ledger(job={"wall_us": 100.0, "compute": 100.0}), Verdict("input", "Slow"), findings)


def test_the_larger_gain_sets_a_thing_that_two_findings_want() -> None:
    report = _report(
        (40.0, (_fix({"num_workers": 4, "persistent_workers": True}), _fix({"gc_interval": 1000}, ()))),
        (20.0, (_fix({"num_workers": 8}), _fix({"num_workers": 2}, ("eval.py:3",)), _fix({}))),
        (1.0, (_fix({"fused": True}),)),  # below what is told as a finding
    )
    wanted = [fix for fix, _, _ in applicable(report)]
    told = [(dict(fix.values), fix.at, fix.finding.removeprefix("kind.number")) for fix in wanted]
    assert told[0] == ({"num_workers": 4, "persistent_workers": True}, "train.py:57", "0")
    assert told[1:] == [({"gc_interval": 1000}, "", "0"), ({"num_workers": 2}, "eval.py:3", "1")]
    text = fixes_file(report)
    assert text is not None and list(parse_fixes(text)) == wanted
    assert applicable(from_contract(to_contract(report))) == applicable(report)


def test_the_file_names_every_finding_in_order_and_the_first_ones_fix_is_no_other() -> None:
    unproven = replace(_fix({"broadcast_buffers": False}), condition="Check first that buffers stay")
    report = _report((40.0, (unproven,)), (20.0, (_fix({"num_workers": 4}),)), (10.0, (_fix({}),)))
    text = fixes_file(report)
    assert text is not None and [fix.finding for fix in parse_fixes(text)] == ["kind.number1"]
    places = [text.find(f"kind.number{number}") for number in range(3)]
    assert 0 < places[0] < places[1] < places[2] and "why). Check first that buffers stay" in text
    assert not mends_first(report) and mends_first(_report((20.0, (_fix({"num_workers": 4}),))))
    assert next(dict(fix.values) for fix, _, _ in applicable(report, is_proven=True)) == {"broadcast_buffers": False}


def test_what_cannot_be_applied_leaves_no_file_and_each_line_gets_a_fix() -> None:
    assert fixes_file(_report((40.0, (_fix({}), _fix({"bucket_cap_mb": 0.2}))))) is None
    report = _report((40.0, (_fix({"reshard_after_forward": False}, ("a.py:1", "a.py:9")),)))
    assert [fix.at for fix, _, _ in applicable(report)] == ["a.py:1", "a.py:9"]
