"""Candidates for avoidable communication, each under the rule of its cost: latency or bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.calls import MEETING_CALLS, called_by_script, called_name
from ddprof.analyzers.facts.script.phases import call_of
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.job.redundant.between import caller_words, callers, noted_calls, noted_of_script
from ddprof.analyzers.job.redundant.find import needless_us
from ddprof.analyzers.job.script.beside import MIN_SAMPLES, run_samples
from ddprof.analyzers.job.traffic.kinds import ACCUMULATION, BUFFERS, METRICS, NORMS, OF_LOSS, PARAMETERS, UNUSED
from ddprof.analyzers.job.traffic.statistics import Traffic
from ddprof.analyzers.job.whole_run.called import called_outside, calling_us
from ddprof.analyzers.rules.evidence.exposures import TINY_BYTES
from ddprof.findings import Alters, Basis, Candidate, Change, Evidence, Fix
from ddprof.sidecar.calls import ScriptCall
from ddprof.tables import Array
from ddprof.units import format_bytes, format_count, format_number, format_share, format_us

# Replacement code for avoidable communication, by kind.


def accumulation(measures: Measures, passes: int) -> Fix:
    """The fix that reduces in the last backward pass only."""
    sharded = "fsdp" in measures.settings.parallelism or any(t.role == "fsdp_shard" for t in measures.comm.traffic)
    if sharded and measures.settings.fsdp.version != 1:
        patch = "model.set_requires_gradient_sync(is_last_micro_batch)  # before each forward pass"
        source = "torch.distributed.fsdp.FSDPModule.set_requires_gradient_sync documentation"
    else:
        patch = (
            "with contextlib.nullcontext() if is_last_micro_batch else model.no_sync():\n"
            "    loss_of(model(batch)).backward()  # the forward pass belongs inside, too"
        )
        source = "torch.nn.parallel.DistributedDataParallel.no_sync documentation"
    memory = "; until then each rank keeps whole gradients, which takes memory" if sharded else ""
    return Fix(
        setting="gradient reductions while gradients are accumulated",
        current=f"in each of {passes} backward passes",
        suggested="in the last one before the optimizer",
        patch=patch,
        why=f"the result is the same when accumulated gradients are reduced once{memory}",
        source=source,
        alters=Alters.REDUCTIONS,
    )


_NO_BUFFERS = Fix(
    setting="broadcast_buffers",
    current="True",
    suggested="False",
    patch="DistributedDataParallel(model, broadcast_buffers=False)",
    applies=(("broadcast_buffers", False),),
    why="training reads no running statistics, and constants are equal already; before evaluating on all ranks "
    "send rank 0's once, or use SyncBatchNorm",
    source="torch.nn.parallel.DistributedDataParallel documentation",
    alters=Alters.BUFFERS,
)
_NO_SEARCH = Fix(
    setting="find_unused_parameters",
    current="True",
    suggested="False",
    applies=(("find_unused_parameters", False),),
    patch="DistributedDataParallel(model)  # its error names unused parameters, should there be any",
    why="the search finds nothing; without it DDP orders buckets as gradients arrive",
    source="torch.nn.parallel.DistributedDataParallel documentation; PyTorch DDP (VLDB'20) section 3.2.3",
    alters=Alters.PARAMETERS,
)
_FEWER_METRICS = Fix(
    setting="metrics over all ranks",
    current="in every step",
    suggested="added up on each rank, reduced every N steps",
    patch="total += loss.detach()  # and counts, such as (logits.argmax(-1) == labels).sum(), not the logits\n"
    "if step % 100 == 0:\n    dist.all_reduce(total)  # one tensor for all values",
    why="ranks synchronize there in every step, and the host waits for the values",
    source="PyTorch performance tuning guide",
    alters=Alters.VALUES,
)
_FEWER_BEFORE_BACKWARD = Fix(
    setting="collectives between forward and backward pass",
    current="in every step",
    suggested="every N steps, where the loss does not use their values; else all values in one tensor",
    patch="if step % 100 == 0:\n    dist.all_reduce(values)",
    why="no gradient passes through them, and ranks synchronize there in every step",
    source="torch.distributed documentation",
    alters=Alters.VALUES,
)
_NO_PARAMETERS = Fix(
    setting="parameters sent after the optimizer's step",
    suggested="not at all, or once in many steps as a check",
    why="DistributedDataParallel sends the parameters once and reduces gradients: replicas stay equal",
    source="PyTorch DDP (VLDB'20)",
    alters=Alters.EQUAL,
)


def norms(measures: Measures, _: int) -> Fix:
    """The fix that reduces all values in one collective."""
    equal = "ddp" in measures.settings.parallelism
    note = "; gradients that DDP has reduced are equal on all ranks, and their norm needs none" if equal else ""
    return Fix(
        setting="values reduced one by one",
        suggested="one tensor for all of them",
        patch="squares = torch.stack(torch._foreach_norm(gradients)).square().sum()\n"
        "dist.all_reduce(squares)  # once; torch.nn.utils.clip_grad_norm_ does without where gradients are whole",
        why=f"each call pays its latency, and the next one waits for it{note}",
        source="torch.nn.utils.clip_grad_norm_ documentation",
    )


# Script lines that call avoidable communication, from capture's notes or recorded frames.

_OF_SCRIPT = (METRICS, OF_LOSS, PARAMETERS, NORMS)  # called by its lines, and not by DDP
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
    if kind in _OF_SCRIPT:
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
    caller = tree.called_from(inside)
    user = np.where(caller >= 0, tree.folded[caller], -1)
    seen = tree.by_words(user, run_samples(facts, phase) * inside)
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


MIN_SHARE = 0.01  # of the step in it, mean over ranks; that of comm.barrier


class Avoidable(Struct, frozen=True):
    """One kind of avoidable communication. `where`: the line that calls it, after a comma; "" if unknown."""

    traffic: tuple[Traffic, ...]
    number: int  # as in Needless
    where: str

    @property
    def calls(self) -> float:
        """Calls per step, mean over ranks."""
        return sum(traffic.count for traffic in self.traffic)

    @property
    def size_bytes(self) -> float:
        """Bytes per rank and step."""
        return sum(traffic.total_bytes for traffic in self.traffic)

    def of_bytes(self, calls: float = 1.0, how: str = " in all") -> str:
        """The size in words; "" where sizes were not recorded."""
        return f" of {format_bytes(self.size_bytes / max(1.0, calls))}{how}" if self.size_bytes else ""

    @property
    def op(self) -> str:
        """The most frequent operation."""
        return max(self.traffic, key=lambda traffic: traffic.count).op


def could_go(measures: Measures, rule_id: str, is_volume: bool) -> Iterator[Candidate]:
    """Candidates for avoidable communication that costs by its bytes (`is_volume`), or by its number of calls."""
    for kind in measures.needless:
        traffic = tuple(t for t in measures.comm.traffic if t.needless == kind)
        is_large = sum(t.total_bytes for t in traffic) >= TINY_BYTES * sum(t.count for t in traffic)
        if not traffic or (kind == ACCUMULATION or is_large) != is_volume:
            continue
        held_us = needless_us(measures.job, measures.needless[kind], waits=True)
        # A setting that serves nothing is worth a word however little it costs.
        if kind == UNUSED or held_us.mean() >= MIN_SHARE * measures.step_us:
            yield _candidate(measures, rule_id, kind, traffic, held_us)


def _candidate(
    measures: Measures, rule_id: str, kind: str, traffic: tuple[Traffic, ...], held_us: np.ndarray
) -> Candidate:
    worst = int(np.argmax(held_us))
    lines = called_at(measures, kind, worst)
    avoidable = Avoidable(traffic, measures.needless[kind].number, f", at {lines[0]}" if lines else "")
    cost_us, transfer_us = float(held_us.mean()), sum(t.transfer_us for t in traffic)
    each = avoidable.of_bytes(avoidable.calls, " each" * (round(avoidable.calls) > 1))
    needed = "are needed by the loss alone, if at all" if kind == OF_LOSS else "are not needed"
    evidence = Evidence(
        f"{format_count(round(avoidable.calls), f'{avoidable.op} call')} per step{each} {needed}; they take "
        f"{format_us(cost_us)} per step ({format_share(cost_us / measures.step_us)}), {format_us(transfer_us)} of it "
        "transfer"
    )
    summary, fix = _WORDS[kind]
    changes: tuple[Change, ...] = (Change("drop_needless", (), (), kind),)
    more_us = 0.0
    # Of what is computed on values gathered from all ranks, each rank's own part is left.
    part = share_on_gathered(measures, worst) * (len(held_us) - 1) / len(held_us) if kind == METRICS else 0.0
    if part > 0:
        changes = (*changes, Change("no_script", values=(1.0 - part,)))
        more_us = part * float(measures.script_us[worst])
    timed_us = calling_us(measures.job.ranks) if kind in _OF_SCRIPT else None
    candidate = Candidate(
        id=rule_id,
        summary=summary.format(it=avoidable, size=avoidable.of_bytes(), more=avoidable.calls + 1),
        lost_us=cost_us + more_us,
        changes=changes,
        basis=Basis.RECORDED,
        evidence=(
            evidence,
            *_more(measures, kind),
            *(Evidence(f"called at {line}", measures.job.rank_ids[worst]) for line in lines),
        ),
        fixes=(fix if isinstance(fix, Fix) else fix(measures, avoidable.number),),
        ceiling_us=float(held_us.max()) + more_us,
        timed_us=None if timed_us is None else timed_us + more_us,
    )
    return replace(candidate, basis=Basis.DEDUCED, band=1.0, is_bound=True) if kind == OF_LOSS else candidate


def _more(measures: Measures, kind: str) -> Iterator[Evidence]:
    """Further evidence on a kind of avoidable communication."""
    largest = measures.settings.ddp.buffers
    if kind == BUFFERS and largest.largest:
        yield Evidence(f"the largest buffer is '{largest.largest}', {format_bytes(largest.largest_bytes)}")
    if kind == UNUSED:
        yield Evidence("each pass searches the graph for parameters without a gradient and reduces a map of them")


def on_gathered(measures: Measures, position: int) -> Array:
    """Mask of a rank's stacks in loop calls that gather values which no pass needs; shape (stacks,)."""
    facts = measures.job.ranks[position]
    tree = call_tree(facts)
    if METRICS not in measures.needless or not len(tree):
        return np.zeros(len(tree), bool)
    lines = {line.partition(", in ")[0] for line in called_at(measures, METRICS, position)}
    named = np.array([tree.words(frame) in lines for frame in range(len(tree.frames))], bool)
    called = call_of(tree)
    calls = np.unique(called[named[tree.frame] & (called >= 0)])
    return np.asarray(np.isin(called, calls))


def share_on_gathered(measures: Measures, position: int) -> float:
    """Share of a rank's time in Python of its script (`Measures.script`) in those stacks."""
    own_ns = measures.script[position].stack_ns
    total = float(own_ns.sum())
    return float(own_ns[on_gathered(measures, position)].sum()) / total if total else 0.0


MakeFix = Callable[[Measures, int], Fix]
# Of each kind the summary, with the fields of Avoidable, and the fix.
_WORDS: dict[str, tuple[str, Fix | MakeFix]] = {
    ACCUMULATION: (
        "gradients are reduced after each of {it.number} micro-batches, not once per optimizer step{it.where}",
        accumulation,
    ),
    BUFFERS: ("DistributedDataParallel broadcasts buffers{size} before each forward pass{it.where}", _NO_BUFFERS),
    UNUSED: (
        "find_unused_parameters=True without need: all {it.number} parameters get a gradient in every traced pass",
        _NO_SEARCH,
    ),
    METRICS: ("every step calls {it.op} between its passes, likely for metrics{it.where}", _FEWER_METRICS),
    OF_LOSS: (
        "the script calls {it.op}{size} between forward and backward pass{it.where}",
        _FEWER_BEFORE_BACKWARD,
    ),
    PARAMETERS: (
        "every step sends or averages likely the model's parameters{size}, which stay equal without{it.where}",
        _NO_PARAMETERS,
    ),
    NORMS: (
        "{more:.0f} small values are reduced one by one between backward pass and optimizer{it.where}",
        norms,
    ),
}


# A finding on collectives that the script calls in none of the traced steps, and in most of those after them.

LEAST = 0.06  # of the mean step: as of Python that runs in some steps only (evidence/script.py)


def calls_outside(
    measures: Measures, rule_id: str, is_meeting: bool, fix: Callable[[set[str]], Fix]
) -> Iterator[Candidate]:
    """The candidate of a rule on meetings (barriers, objects) or on other collectives; none where they cost little."""
    outside = called_outside(measures.job.ranks)
    if outside is None or outside.cost < LEAST or (outside.lines[0][0].op in MEETING_CALLS) != is_meeting:
        return
    facts = measures.job.ranks[0]
    first, per_step = outside.lines[0]
    cost_us = outside.cost * measures.step_us
    yield Candidate(
        id=rule_id,
        summary=f"{format_number(per_step)} {first.op} calls per step outside the trace, at "
        f"{caller_words(facts, first)}, take {format_share(outside.cost)} of the step",
        lost_us=cost_us,
        basis=Basis.TIMED,
        evidence=(
            Evidence(f"called in {outside.often} of {outside.steps} steps outside the trace, in no traced step"),
            *(
                Evidence(
                    f"{calls:.1f} {line.op} calls per step{_of_size(line.size, line.dtype)} "
                    f"at {caller_words(facts, line)}"
                )
                for line, calls in outside.lines[:3]
            ),
        ),
        fixes=(fix({line.op for line, _ in outside.lines}),),
        band=0.25,
    )


def _of_size(size: tuple[int, ...] | None, dtype: str) -> str:
    return f" of {list(size)} {dtype.removeprefix('torch.')}" if size else ""
