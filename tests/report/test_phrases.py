"""Sentences for lists and notes: counts in place of lists that nobody reads, names without their folders."""

from dataclasses import replace

from ddprof.findings import Abstention, Evidence, Finding, Recoverable
from ddprof.report import data_notes, phrases
from ddprof.report.model import HealthItem, HostClockInfo, Report


def test_long_lists_are_counted_and_notes_name_files_without_folders(straggler_report: Report) -> None:
    many = tuple(Abstention(f"family.rule{n}", "one step is too few") for n in range(20))
    few = ("memory.headroom", "no memory events")
    report = replace(straggler_report, abstentions=(*many, Abstention(*few)))
    assert phrases.abstention_words(report) == [("20 causes", "one step is too few"), few]
    assert phrases.abstentions_by_reason(report)["one step is too few"] == [a.id for a in many]
    run = replace(straggler_report.run, paths=("/data/runs/a/rank0.json", "/data/runs/a/rank1.json"))
    early = [HealthItem(f"{path}: it ends early", "a step is left out", rank=r) for r, path in enumerate(run.paths)]
    for health, of in ((early[1:], "rank 1: rank1.json"), (early, "ranks 0, 1: rank0.json and 1 more")):
        ((_, words),) = data_notes.health_words(replace(straggler_report, run=run, health=tuple(health)))
        assert words == f"{of}: it ends early; a step is left out"


def test_a_step_that_pulls_the_mean_out_of_the_spread_is_said(straggler_report: Report) -> None:
    def spread(*steps_us: float) -> str:
        steps = replace(straggler_report.steps, per_step_us=steps_us)
        return phrases.spread_words(replace(straggler_report, steps=steps))

    assert spread(126e3, 127e3, 123e3, 164e3, 124e3) == "±1.2 % but one of 164 ms"
    assert "but" not in spread(126e3, 127e3, 123e3, 125e3, 124e3) and spread(1e3, 2e3) == ""


def test_most_of_a_step_without_a_cause_is_unexplained_and_not_idle(straggler_report: Report) -> None:
    for cause, word in (("unknown", "Unexplained"), ("other", "Idle"), ("compute", "Compute-bound")):
        ledger = replace(straggler_report.ledger, job={"compute": 40.0, cause: 60.0, "wall_us": 100.0})
        assert phrases.bound_word(replace(straggler_report, ledger=ledger)) == f"{word} (60 %)"


def test_clocks_of_ranks_whose_hosts_nobody_recorded_are_no_hosts(straggler_report: Report) -> None:
    clocks = {"rank 0": HostClockInfo(0.0, 0.0, 0.0), "rank 1": HostClockInfo(error_us=3.0)}
    clock = replace(straggler_report.clock, hosts=clocks, method="ends")
    for hosts, said in (({0: "a", 1: "b"}, "2 hosts"), ({}, "2 ranks, whose hosts were not recorded,")):
        report = replace(straggler_report, clock=clock, run=replace(straggler_report.run, hosts=hosts))
        assert data_notes.clock_words(report).startswith(f"clocks of {said} ")
    alone = replace(clock, hosts={**clocks, "rank 2": HostClockInfo(error_us=None)})
    words = data_notes.clock_words(replace(straggler_report, clock=alone))
    assert words.startswith("clocks of 2 of 3 hosts aligned") and words.endswith("; nothing connects the others")


def test_a_rank_is_named_by_its_whole_number_and_late_only_where_others_wait(straggler_report: Report) -> None:
    assert phrases.evidence_words(Evidence("rank 12 waits", 1)) == "rank 12 waits [rank 1]"
    assert phrases.evidence_words(Evidence("rank 1 waits", 1)) == "rank 1 waits"
    full = Finding("memory.headroom", "memory of rank 2 is 96 % full", (2,), 0.0, Recoverable(0.0, 0.0, 0.0), 0.9)
    assert "late" not in phrases.gain_words(straggler_report, full)
    waited = replace(full, waited_us=300.0)
    assert "just as late" in phrases.gain_words(straggler_report, waited)
    unjudged = replace(straggler_report, verdict=replace(straggler_report.verdict, bound="none"))
    assert "late" not in phrases.gain_words(unjudged, waited) + phrases.cost_words(unjudged, waited)
