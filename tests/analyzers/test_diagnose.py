"""Order of findings, a cause before the waiting that it makes, findings that give way to others, and headlines."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kineto_run import Script, loaded
from labelled_runs import Labelled, Runs, serious

from ddprof.analyzers.catalogue import catalogue
from ddprof.analyzers.diagnose import Diagnosis, diagnose, in_order
from ddprof.analyzers.verdict import verdict
from ddprof.findings import Basis, Candidate, Change, Finding, Fix, Recoverable, Rule, severity_of
from ddprof.report.phrases import gain_words
from ddprof.units import format_us

Said = dict[str, tuple[tuple[int, ...], Change, float]]  # by title: accused ranks, change, the time lost (us)
LARGER, SMALLER = (Change("scale_compute", (2,), (factor,)) for factor in (1.3, 1.25))


def test_the_larger_finding_explains_the_waiting_and_every_rule_is_told(labelled: Runs) -> None:
    """A slow device makes its peers wait; nothing but the device is a warning, and findings come worst first."""
    run = labelled("straggler.compute")
    findings = diagnose(run.measures, run.pricer).findings
    assert list(serious(replace(run.report, findings=findings))) == ["straggler.compute"]
    gains = [f.recoverable_us.value for f in findings]
    assert gains == sorted(gains, reverse=True)
    said = diagnose(labelled("clean.ddp").measures, labelled("clean.ddp").pricer)
    assert {a.id for a in said.abstentions}.isdisjoint(said.checked) and all(a.reason for a in said.abstentions)


def diagnosed(run: Labelled, monkeypatch: pytest.MonkeyPatch, said: Said, *fixes: Fix) -> Diagnosis:
    """The diagnosis of a run where rules say this alone."""

    def rule(title: str, ranks: tuple[int, ...], change: Change, lost_us: float) -> Rule:
        told = Candidate(title, title, lost_us, Basis.COMPARED, ranks, (change,), fixes=fixes)
        return Rule(title, title, lambda _: iter([told]))

    rules = {title: rule(title, *parts) for title, parts in said.items()}
    monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: rules)
    return diagnose(run.measures, run.pricer)


def test_the_same_time_under_another_name_gives_way(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the larger of two candidates that remove one time stays, though each alone would be reported."""
    run = labelled("straggler.compute")
    both: Said = {"larger": ((), LARGER, 0.0), "same time": ((), SMALLER, 0.0)}
    for names, left in ((["larger"], "larger"), (["same time"], "same time"), (list(both), "larger")):
        assert [f.id for f in diagnosed(run, monkeypatch, {name: both[name] for name in names}).findings] == [left]
    one_fix: Said = {name: ((2,), change, 1e4) for name, (_, change, _) in both.items()}  # a clear cost, at one line
    assert [f.id for f in diagnosed(run, monkeypatch, one_fix, Fix("a.py:3", "", "", "")).findings] == ["larger"]


def test_what_a_larger_fix_covers_keeps_its_price_alone(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clear cost stays in the list at a price of nothing, and neither words nor what-if deny its worth alone."""
    run = labelled("straggler.compute")
    step_us = run.measures.step_us
    found = diagnosed(run, monkeypatch, {"larger": ((2,), LARGER, step_us), "shared": ((2,), SMALLER, step_us)})
    larger, shared = found.findings
    alone_us = step_us - run.pricer.step_us((SMALLER,))
    assert larger.alone_us is None and shared.alone_us is not None
    assert shared.alone_us.value == pytest.approx(alone_us) and shared.recoverable_us.value < 0.1 * alone_us
    assert {row.change: row.predicted_step_us for row in found.what_if}["shared"] == pytest.approx(step_us - alone_us)
    assert gain_words(run.report, shared).startswith(format_us(alone_us))


@pytest.mark.parametrize(("name", "first"), [("input.straggler", "late loader"), ("input.starved", "every loader")])
def test_the_time_of_some_is_not_of_all(labelled: Runs, monkeypatch: pytest.MonkeyPatch, name: str, first: str) -> None:
    """A change to all ranks always wins a little more than the same change to the late one, which is the cause."""
    run = labelled(name)
    parts = {"late loader": tuple(run.fault["culprit_ranks"] or (0,))[:1], "every loader": ()}
    lost_us = 0.9 * run.measures.step_us
    said: Said = {title: (ranks, Change("instant_loader", ranks), lost_us) for title, ranks in parts.items()}
    assert diagnosed(run, monkeypatch, said).findings[0].id == first


def test_what_is_done_to_all_ranks_explains_no_slow_device(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels a tenth as long leave the slow device nothing to win: it is slow in this run nevertheless."""
    run = labelled("straggler.compute")
    said: Said = {"all": ((), Change("scale_compute", (), (10.0,)), 0.0)}
    said["slow device"] = ((2,), Change("scale_compute", (2,), (1.3,), "peers"), 0.0)
    gain_us = {f.id: f.recoverable_us.value for f in diagnosed(run, monkeypatch, said).findings}
    assert gain_us["all"] > gain_us["slow device"] > 0.03 * run.measures.step_us


def test_only_a_rule_that_contradicts_itself_has_not_judged(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Rule("a", "a", lambda _: iter([Candidate("a", "", 1.0, Basis.RECORDED, times_us=(9.0, 0.0, 0.0, 0.0))]))
    slow = catalogue()["straggler.compute"]
    monkeypatch.setattr("ddprof.analyzers.diagnose.catalogue", lambda: {"a": wrong, slow.id: slow})
    run = labelled(slow.id)
    said = diagnose(run.measures, run.pricer)
    assert [f.id for f in said.findings] == [slow.id]
    assert [(a.id, a.reason[:15]) for a in said.abstentions] == [("a", "few ranks alone")]


def finding(identifier: str, share: float, step_us: float, *ranks: int) -> Finding:
    gain_us = share * step_us
    return Finding(identifier, identifier, ranks, gain_us, Recoverable(gain_us, gain_us, gain_us), confidence=0.9)


@pytest.mark.parametrize(
    ("cause", "share", "late", "leads"),
    [
        ("host.script", 0.35, (), True),  # what turns cost is a bound, and not clearly larger
        *(("host.script", 0.25, (), False), ("host.script", 0.35, (1,), False)),
        ("host.launch_bound", 0.35, (), False),  # its price is a bound itself
    ],
)
def test_a_price_leads_the_bound_of_turns_unless_that_is_clearly_larger(
    labelled: Runs, cause: str, share: float, late: tuple[int, ...], leads: bool
) -> None:
    run = labelled("clean.ddp")
    measures = run.measures
    turns = finding("straggler.unexplained", 0.4, measures.step_us, *late)
    known = finding(cause, share, measures.step_us)
    for found in ([turns, known], [known, turns]):
        assert list(in_order(found, measures, run.pricer)) == ([known, turns] if leads else [turns, known])


def test_what_saves_more_without_the_profiler_stands_first(labelled: Runs) -> None:
    """The headline says the gain of such a step."""
    run = labelled("clean.ddp")
    step_us = run.measures.step_us
    without: Any = SimpleNamespace(step_us=0.5 * step_us)
    pricer = replace(run.pricer, unprofiled=without)
    python, sending = (finding(name, share, step_us) for name, share in (("host.script", 0.4), ("comm.barrier", 0.3)))
    python = replace(python, unprofiled_us=Recoverable(0.1 * step_us, 0.0, 0.2 * step_us))
    sending = replace(sending, unprofiled_us=Recoverable(0.15 * step_us, 0.1 * step_us, 0.2 * step_us))
    assert in_order([python, sending], run.measures, pricer) == (sending, python)
    assert in_order([python, sending], run.measures, run.pricer) == (python, sending)
    late = replace(python, ranks=(1,))
    assert in_order([late, sending], run.measures, pricer) == (late, sending)  # who first, where both may be
    # 20 % and more of such a step; what may save nothing is not critical.
    told = [severity_of(finding, step_us, pricer.bare_us) for finding in (sending, python)]
    assert told == ["critical", "warning"] and severity_of(python, step_us, None) == "critical"


@pytest.mark.parametrize(
    ("share", "ranks", "low", "confidence", "severity"),
    [
        *((0.2, (), 0.1, 0.9, "critical"), (0.2, (), 0.0, 0.9, "warning"), (0.05, (), 0.0, 0.9, "info")),
        *((0.05, (0,), 0.0, 0.9, "warning"), (0.2, (0,), 0.0, 0.5, "info"), (0.2, (0,), 0.1, 0.5, "critical")),
    ],
)
def test_a_range_from_nothing_is_not_critical(
    share: float, ranks: tuple[int, ...], low: float, confidence: float, severity: str
) -> None:
    gain = Recoverable(share * 1e3, low * 1e3, 2 * share * 1e3)
    assert severity_of(Finding("x", "x", ranks, share * 1e3, gain, confidence), 1e3, None) == severity


def headline(folder: Path, waits_us: list[float], op: str = "aten::mm") -> str:
    """The headline of a run whose steps compute for 36 ms and wait so long for their batch."""
    script = Script()
    for step in script.steps(len(waits_us)):
        script.host("enumerate(DataLoader)#_Iter.__next__", 500.0 + waits_us[step], "user_annotation")
        for call in range(40):
            script.launch(f"gemm{call % 5}", dur_us=900.0, op=op)
        script.synchronise()
    return loaded([script], folder).report.verdict.headline


@pytest.mark.parametrize("place", range(3))
def test_of_three_steps_one_that_waits_is_said_beside_the_others(tmp_path: Path, place: int) -> None:
    said = headline(tmp_path, [170e3 * (step == place) for step in range(3)])
    assert "36.5 ms step" in said and "a step takes 93.2 ms, with waiting for the next batch" in said
    assert f"if step {place + 1} recurs: record more steps to tell" in said


def test_of_many_steps_or_of_two_that_wait_nothing_is_left_open(tmp_path: Path) -> None:
    assert "recurs" not in headline(tmp_path, [2e6, *[0.0] * 14])
    assert "waits for its data loader" in headline(tmp_path, [0.0, 170e3, 0.0, 170e3])
    assert "operator, gemm0, takes" in headline(tmp_path, [0.0] * 4, "Torch-Compiled Region: 0/0")  # not all of a graph


def test_a_fix_that_may_save_nothing_is_no_headline_and_not_denied(labelled: Runs) -> None:
    run = labelled("straggler.compute")
    gain = Recoverable(0.05 * run.measures.step_us, 0.0, 0.09 * run.measures.step_us)
    unsure = Finding("host.script", "Python delays kernels", (), 0.0, gain, 0.5)
    for findings, said in (((), "no fix above 3 % found"), ((unsure,), "finding 1 may save 5.0 %, or nothing")):
        words = verdict(run.measures, Diagnosis(findings, (), (), ()), run.report.steps).headline
        assert f"{said}; the longest operator, aten::" in words


@pytest.mark.parametrize(("bare", "said"), [(0.5, "step without the profiler, 20 %"), (1.0, "step, 60 %")])
def test_the_gain_is_said_of_a_step_without_the_profiler(labelled: Runs, bare: float, said: str) -> None:
    """The profiler doubles what the host takes: a fix that saves 60 % of a traced step saves 20 % of the job's."""
    run = labelled("straggler.compute")
    step_us = run.measures.step_us
    gain, outside = (Recoverable(us, 0.9 * us, 1.1 * us) for us in (0.6 * step_us, 0.2 * bare * step_us))
    finding = Finding("host.launch_bound", "the device waits", (), 0.0, gain, 0.9, unprofiled_us=outside)
    steps = replace(run.report.steps, unprofiled_us=bare * step_us)
    assert verdict(run.measures, Diagnosis((finding,), (), (), ()), steps).headline.endswith(said)
