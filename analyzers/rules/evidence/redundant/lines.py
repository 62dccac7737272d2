"""Script lines that call avoidable communication, from capture's notes or recorded frames."""

from __future__ import annotations

from collections import Counter

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.barriers import called_name
from ddprof.analyzers.facts.script.calls import called_by_script
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.redundant.between import callers, noted_calls, noted_of_script
from ddprof.analyzers.job.script.beside import MIN_SAMPLES, run_samples
from ddprof.analyzers.job.traffic.redundant import ACCUMULATION, BUFFERS, METRICS, NORMS, PARAMETERS, UNUSED
from ddprof.sidecar.calls import ScriptCall

MOST_LINES = 3  # that a finding names
LEAST_CALLS = 0.1  # of the first line's calls: a line with fewer is not what makes them many; as in host_script
_PASSES = {ACCUMULATION: "backward", BUFFERS: "forward"}  # which of them calls it


def called_at(measures: Measures, kind: str, position: int) -> list[str]:
    """Lines of one rank's script that call communication of a kind, most calls first; [] where unknown."""
    if kind == UNUSED:
        return []  # a setting of the model, and no line of the loop
    facts, needless = measures.job.ranks[position], measures.needless[kind]
    noted: list[ScriptCall | None] = []
    host = needless.host[position]
    if kind in (METRICS, PARAMETERS, NORMS):
        inside = intervals.contains(host, facts.script_calls["start_ns"])
        noted = [call for call, is_inside in zip(noted_of_script(facts), inside, strict=True) if is_inside]
    else:  # called by a pass: its line is where the host is while they move
        comms = facts.comms.take(needless.comms[position])
        host = intervals.merge(host, intervals.union(*comms.bounds))
    found_lines = [caller.words for caller in callers(facts, noted, host)[:MOST_LINES]]
    return found_lines or line_of_pass(facts, _PASSES.get(kind, ""))


def line_of_pass(facts: RankFacts, phase: str) -> list[str]:
    """The script line that calls a pass, by samples of the whole run, as the window may hold too few."""
    tree = call_tree(facts)
    if phase not in _PASSES.values():
        return []
    inside = tree.is_forward if phase == "forward" else tree.is_backward
    seen: Counter[str] = Counter()
    for stack, samples in run_samples(facts, phase).items():
        caller = stack
        while caller >= 0 and inside[caller]:
            caller = int(tree.outer[caller])
        if caller not in (stack, -1) and tree.folded[caller] >= 0:
            seen[tree.words(int(tree.frame[tree.folded[caller]]))] += int(samples)
    return [words for words, samples in seen.most_common(1) if samples >= MIN_SAMPLES]


def lines_that_call(facts: RankFacts, op: str, per_step: float) -> list[str]:
    """Lines of a rank's script that call a collective themselves, most calls first; [] where most of the `per_step`
    calls are DDP's buckets or others'.
    """
    is_call = called_by_script(facts, op, per_step)
    if not is_call.any():
        return []
    noted = [call for call, is_called in zip(noted_of_script(facts), is_call.tolist(), strict=True) if is_called]
    during = intervals.union(*facts.script_calls.bounds_of(is_call))
    lines = callers(facts, noted, during)[:MOST_LINES] if len(during[0]) else []
    return [line.words for line in lines if line.calls >= LEAST_CALLS * lines[0].calls]


def meeting_lines(facts: RankFacts) -> list[str]:
    """Lines of a rank's script that call barriers and collectives of Python objects, most calls first."""
    calls, noted = facts.meetings, list[ScriptCall | None]()
    names = [called_name(facts.strings[int(name)]) for name in calls["name"]]
    for name in dict.fromkeys(names):
        rows = [row for row, other in enumerate(names) if other == name]
        noted += noted_calls(facts, name, calls["start_ns"][rows])
    return [caller.words for caller in callers(facts, noted, intervals.union(*calls.bounds))[:MOST_LINES]]
