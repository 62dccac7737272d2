"""Sentences for lists and notes: counts in place of lists that nobody reads, names without their folders."""

from dataclasses import replace

from ddprof.findings import Abstention
from ddprof.report import phrases
from ddprof.report.model import HealthItem, Report


def test_long_lists_are_counted_and_notes_name_files_without_folders(straggler_report: Report) -> None:
    many = tuple(Abstention(f"family.rule{n}", "one step is too few") for n in range(20))
    few = (Abstention("memory.headroom", "no memory events"),)
    report = replace(straggler_report, abstentions=many + few)
    told = [("20 causes", "one step is too few"), ("memory.headroom", "no memory events")]
    assert phrases.abstention_words(report) == told
    assert phrases.abstentions_by_reason(report)["one step is too few"] == [a.id for a in many]
    run = replace(straggler_report.run, paths=("/data/runs/a/rank0.json", "/data/runs/a/rank1.json"))
    item = HealthItem("/data/runs/a/rank1.json: the trace ends early", "its last step is left out", rank=1)
    ((_, words),) = phrases.health_words(replace(straggler_report, run=run, health=(item,)))
    assert words == "rank 1: rank1.json: the trace ends early; its last step is left out"
