"""Collectives that the script calls outside the passes: values gathered in every step, and norms reduced one by one.

Recognised by what comes before and after. Between forward and backward a collective may be part of the loss, unless a
library of metrics makes it: the finding says so, and may gain nothing. Between backward and optimizer the step may
depend on it, but many small ones can be one. After the optimizer, and after a backward pass that no optimizer follows,
no pass needs what it brings.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct

from ddprof import intervals
from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.names import OP_CODE
from ddprof.analyzers.facts.script.calls import CALLS
from ddprof.analyzers.facts.script.tree import written
from ddprof.analyzers.facts.work import Moment, issued_ns, moments_of, passes_of
from ddprof.analyzers.job.script.lines import lines_in, shown_file
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.sidecar.calls import CallingLine, ScriptCall
from ddprof.tables import NULL, Array


def called_by_host(facts: RankFacts, rows: Array) -> Intervals:
    """Intervals of the host in calls that launch some communications (mask, shape (comms,))."""
    comms = facts.comms.take(rows)
    return intervals.union(comms["launch_ns"], comms["launch_end_ns"])  # both are missing, and equal, without a call


WRAPPERS = ("ddp", "fsdp1", "fsdp2")  # kinds of models that reduce their own gradients
_GATHERS = ("all_gather", "all_gather_into_tensor", "all_gather_single", "gather")
_REDUCES = ("all_reduce", "reduce")
# What a script reduces or gathers itself may keep parameters equal (averaged models, sharded optimizers): of less than
# this, one message that moves in 1 ms at 1 Gbit/s, no model is made.
SMALL_BYTES = 128 * 2**10
ONE_BY_ONE_BYTES = 1024  # of a norm, a count, a flag, and of hardly a layer's gradient, where the script reduces these
NEARLY = 0.05  # of the gradients' bytes: a recording begins and ends within a step
WIDEST_BYTES = 4  # of a parameter that ranks keep equal
FEWEST = 3  # such calls after a pass: of two, a norm and a loss, one may need the other's value
AGAIN = 2  # passes that have them: how much they cost on average is for the price to say
MIN_STEPS = 0.5  # of the optimizer's steps: what comes more rarely is done every N steps already
# Packages whose collectives are of metrics; those of others may belong to the way they train.
METRIC_PACKAGES = ("torchmetrics", "torcheval", "ignite", "evaluate")
METRIC_FUNCTIONS = ("accelerate gather_for_metrics",)
_MAY_BE_METRICS = ("accelerate", "lightning", "pytorch_lightning", "lightning_fabric", "transformers")
# A call is noted right after its range opens, by clocks that agree to within 0.1 ms; what is noted this long before or
# after is another call, or the thread had no core in between.
NOTED_NS = 20_000_000


def gathered_values(facts: RankFacts) -> Array:
    """Mask of the rank's script_calls that gather values which no pass needs; shape (script_calls,)."""
    calls = facts.script_calls
    if not len(calls):
        return np.zeros(0, bool)
    place = _places(facts)
    size, through = _bytes(facts), through_of(facts)
    package = np.array([text.partition(" ")[0] for text in through], dtype=object)
    surely = np.isin(package, METRIC_PACKAGES) | np.isin(np.array(through, dtype=object), METRIC_FUNCTIONS)
    free = np.isin(place, (Moment.AFTER_OPTIMIZER, Moment.AFTER_MICRO_BATCH))
    is_small = (size >= 0) & (size <= _most_bytes(facts))
    is_small &= not _by_hand(facts, np.where(free & _is(calls["call"], _REDUCES), size, 0))
    perhaps = np.isin(package, ("", *_MAY_BE_METRICS)) & (
        is_small | (_is(calls["call"], _GATHERS) & _is_no_model(facts, size))
    )
    gathers = (surely & (place != Moment.INSIDE)) | (perhaps & free)
    gathers &= _is(calls["call"], (*_GATHERS, *_REDUCES)) & (size >= 0)
    return gathers if _is_usual(facts, gathers) else np.zeros(len(calls), bool)


def before_backward(facts: RankFacts) -> Array:
    """Mask of the rank's script_calls that gather or reduce values between forward and backward pass, not through a
    library, where a wrapper reduces the gradients; shape (script_calls,)."""
    calls = facts.script_calls
    direct = np.array([text == "" for text in through_of(facts)], bool)
    between = direct & (_places(facts) == Moment.BEFORE_BACKWARD) & _is(calls["call"], (*_GATHERS, *_REDUCES))
    return between if _is_wrapped(facts) and _is_usual(facts, between) else np.zeros(len(calls), bool)


def sent_parameters(facts: RankFacts) -> Array:
    """Mask of the rank's script_calls after the optimizer that send or average as many bytes as others, as those of
    DistributedDataParallel, have reduced of gradients: the parameters are equal without; shape (script_calls,).
    """
    calls, comms = facts.script_calls, facts.comms
    none = np.zeros(len(calls), bool)
    if not len(calls) or not any(model.kind == "ddp" for model in facts.sidecar.models):
        return none
    size = _bytes(facts)
    sends = (_places(facts) == Moment.AFTER_OPTIMIZER) & _is(calls["call"], ("broadcast", "all_reduce")) & (size > 0)
    reduces = (comms["op"] == OP_CODE["all_reduce"]) & (comms["in_bytes"] != NULL) & (call_of(facts) < 0)
    reduced = float(comms["in_bytes"][reduces].sum())
    is_all = abs(float(size[sends].sum()) - reduced) <= NEARLY * reduced
    return sends if is_all and _is_usual(facts, sends) else none


def one_by_one(facts: RankFacts) -> Array:
    """Mask of the rank's script_calls that reduce small values one by one between a backward pass and the optimizer,
    FEWEST or more after one pass, as the next pass may need them; shape (script_calls,). Excludes the last of each.
    """
    calls, none = facts.script_calls, np.zeros(len(facts.script_calls), bool)
    if not len(calls):
        return none
    size, package = _bytes(facts), np.array([text.partition(" ")[0] for text in through_of(facts)], dtype=object)
    reduces = (_places(facts) == Moment.BEFORE_OPTIMIZER) & _is(calls["call"], _REDUCES)
    is_single = reduces & (size >= 0) & (size <= _most_bytes(facts))
    if not _is_wrapped(facts) and (reduces & ~is_single).any():
        return none  # gradients are reduced so, by hand
    is_single &= np.isin(package, ("", *METRIC_PACKAGES, *_MAY_BE_METRICS))  # not of an optimizer that shards its work
    after = np.searchsorted(passes_of(facts, Phase.BACKWARD)[0], calls["start_ns"])
    together = np.bincount(after[is_single], minlength=int(after.max(initial=0)) + 1)
    is_single &= together[after] >= FEWEST
    rows = np.flatnonzero(is_single)
    if len(np.unique(after[rows])) < AGAIN:
        return none
    is_single[list(dict(zip(after[rows].tolist(), rows.tolist(), strict=True)).values())] = False
    return np.asarray(is_single)


def _places(facts: RankFacts) -> Array:
    """Place of each row of script_calls between the passes."""
    return moments_of(facts, facts.script_calls["start_ns"])


def _bytes(facts: RankFacts) -> Array:
    """Bytes that each call moves from this rank; -1 where unknown or nothing was recorded inside."""
    calls, comms = facts.script_calls, facts.comms
    of_call = call_of(facts)
    call, size = of_call[of_call >= 0], comms["in_bytes"][of_call >= 0]
    seen = np.bincount(call, minlength=len(calls))
    sized = np.bincount(call, weights=size != NULL, minlength=len(calls))
    total = np.bincount(call, weights=np.where(size == NULL, 0, size), minlength=len(calls))
    return np.where((seen > 0) & (sized == seen), total, -1)


def call_of(facts: RankFacts) -> Array:
    """Row of script_calls that launched each communication of the rank; -1 for none; shape (comms,)."""
    return intervals.row_at(facts.script_calls.bounds, issued_ns(facts.comms))


@remembered
def _is_wrapped(facts: RankFacts) -> bool:
    """True where a wrapper reduces gradients: capture saw it, or what none of the script's calls has reduced."""
    op = facts.comms["op"]
    reduced = np.isin(op, [OP_CODE["all_reduce"], OP_CODE["reduce_scatter"]]) & (call_of(facts) < 0)
    return bool(reduced.any() or any(model.kind in WRAPPERS for model in facts.sidecar.models))


def _most_bytes(facts: RankFacts) -> int:
    """The bytes up to which a call of the script is of no gradient and no parameter."""
    return SMALL_BYTES if _is_wrapped(facts) else ONE_BY_ONE_BYTES


def _by_hand(facts: RankFacts, reduced: Array) -> bool:
    """True where a script without a wrapper may reduce gradients or parameters in these calls, by their bytes."""
    updates = max(1, len(passes_of(facts, Phase.OPTIMIZER)[0]))
    total = np.array([reduced.sum() / updates])
    is_large = reduced.max(initial=0) > ONE_BY_ONE_BYTES or not _is_no_model(facts, total).all()
    return bool(not _is_wrapped(facts) and reduced.any() and is_large)


def _is_no_model(facts: RankFacts, size: Array) -> Array:
    """Mask of calls whose data cannot be the model's parameters: less than half of them in 16 bit over all ranks, or
    more than all of them in 32 bit per rank.
    """
    parameters = facts.sidecar.parameters.count
    if parameters is None:
        return np.zeros(len(size), bool)
    everyone = max(1, facts.sidecar.world_size or 1)
    is_less, is_more = size * everyone < parameters, size > WIDEST_BYTES * parameters
    return np.asarray((size >= 0) & (is_less | is_more))


def _is_usual(facts: RankFacts, calls: Array) -> bool:
    """True where most optimizer steps have such calls."""
    updates = len(passes_of(facts, Phase.OPTIMIZER)[0])
    return bool(updates and calls.any() and len(np.unique(_steps(facts)[calls])) >= MIN_STEPS * updates)


def _steps(facts: RankFacts) -> Array:
    """Number of optimizer steps before each row of script_calls."""
    return np.searchsorted(passes_of(facts, Phase.OPTIMIZER)[0], facts.script_calls["start_ns"])


def _is(call: Array, names: tuple[str, ...]) -> Array:
    return np.asarray(np.isin(call, [CALLS.index(name) for name in names]))


class Caller(Struct, frozen=True):
    """A line that calls, such as "train.py:88 evaluate()", and the library function that it calls, if any."""

    words: str
    calls: int


def noted_calls(facts: RankFacts, op: str, start_ns: Array) -> list[ScriptCall | None]:
    """Capture's note on each call of a function that begins at `start_ns` (sorted); None where it has none."""
    noted = sorted((call for call in facts.sidecar.window_calls if call.op == op), key=lambda call: call.entered_ns)
    entered = np.array([call.entered_ns for call in noted], np.int64)
    if not len(entered):
        return [None] * len(start_ns)
    after = np.minimum(np.searchsorted(entered, start_ns), len(entered) - 1)
    before = np.maximum(after - 1, 0)
    nearest = np.where(np.abs(entered[before] - start_ns) < np.abs(entered[after] - start_ns), before, after)
    near = np.abs(entered[nearest] - start_ns) <= NOTED_NS
    return [noted[int(row)] if is_near else None for row, is_near in zip(nearest, near, strict=True)]


@remembered
def noted_of_script(facts: RankFacts) -> list[ScriptCall | None]:
    """`noted_calls` of every row of the rank's script_calls."""
    calls = facts.script_calls
    of_rows: list[ScriptCall | None] = [None] * len(calls)
    for code in np.unique(calls["call"]).tolist():
        rows = np.flatnonzero(calls["call"] == code)
        noted = noted_calls(facts, CALLS[code], calls["start_ns"][rows])
        for row, call in zip(rows.tolist(), noted, strict=True):
            of_rows[row] = call
    return of_rows


def through_of(facts: RankFacts) -> list[str]:
    """Library function through which the script makes each call, "package function"; "" if direct or unknown."""
    return ["" if call is None else call.through for call in noted_of_script(facts)]


def callers(facts: RankFacts, noted: list[ScriptCall | None], during: Intervals) -> list[Caller]:
    """The lines that make some calls, most calls first: as noted, else that in which the host is `during` them."""
    counts = Counter(caller_words(facts, call) for call in noted if call is not None)
    if counts:
        return [Caller(words, count) for words, count in counts.most_common()]
    lines = [line for line in lines_in(facts, during) if line.file]
    return [Caller(written(line.file, line.line, line.function), 0) for line in lines[:1]]


def caller_words(facts: RankFacts, call: ScriptCall | CallingLine) -> str:
    """The line that calls a collective, and the library's function that it calls on the way."""
    where = written(shown_file(facts, call.file), call.line, call.function)
    return f"{where}, in {call.through.partition(' ')[2]}()" if call.through else where
