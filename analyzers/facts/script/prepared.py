"""Batches prepared by the training thread of a CPU rank in functions of any name, recognised by their operators.

Between one step's update and the next forward pass, only batch preparation draws random numbers, transforms images, or
makes tensors from Python values (a moving average reads parameters, a log reads values). The rest of such a function
(tokenising, reading files) counts too. After the last of these operators the batch is complete; calls inside a loader's
fetch are the loader's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import HOST_SPANS, NO_STRING, Phase, occupied
from ddprof.analyzers.facts.names import is_dataloader, matches, times
from ddprof.analyzers.facts.script.occupants import queue_frames, takes_from_queue
from ddprof.analyzers.facts.script.phases import HostPhases, call_of, host_phases, script_operators
from ddprof.analyzers.facts.script.tree import CallTree, call_tree, spans_of
from ddprof.intervals import Intervals
from ddprof.model import RankTrace
from ddprof.tables import NULL, Array, Table, among

# Operators by which batches are made (ATen's native_functions.yaml): of Python values, at random, of images.
MAKES_BATCHES = re.compile(
    r"^aten::(?:lift_fresh|rand\w*|normal_?|uniform_|random_|bernoulli\w*|multinomial|grid_sampler\w*|affine_grid\w*"
    r"|upsample_\w+|_upsample_\w+|(?:reflection|replication|constant)_pad\w*|pad|flip|rot90|roll|stft)$"
)
# What allocates or renames a tensor computes nothing: it tells neither what a line is for nor how long it takes.
CARRIES = re.compile(r"^aten::(?:empty\w*|detach_?|to|_to_copy|view|reshape|squeeze_?|unsqueeze_?|alias|resolve_\w+)$")
# What is drawn at random is made of nothing that a function before it returned.
DRAWN = re.compile(r"^aten::(?:rand\w*|normal_?|uniform_|random_)$")
OF_VALUES = "aten::lift_fresh"  # a tensor of Python values or of an array
_COMMUNICATES = re.compile(r"^c10d::|^gloo:|^nccl:")  # values that ranks exchange are no batch
# Functions that are named for something else: what they make is no batch.
_NOT_DATA = re.compile(r"metric|loss|log|plot|save|eval|predict|ema|average", re.IGNORECASE)
_UPDATES = re.compile(r"step|update|optim|apply", re.IGNORECASE)  # where no optimizer was recorded, the script has one
_TRAINS = re.compile(r"^(?:ProfilerStep#|Optimizer\.step#|ddprof::(?:forward|backward|optimizer)$)")
MAKING_SHARE = 0.1  # of the operators and of their time: images pass through some ten more
MOST = 0.5  # of the preparation lies before its last operator: what comes after has the batch
MIN_SHARE = 0.03  # of the time of the steps: less is no finding of its own (docs/verdict.md)


def prepared_in_loop(trace: RankTrace, threads: Array, annotated: Mapping[Phase, Intervals], marks_ns: Array) -> Table:
    """HOST_SPANS of cause "dataloader" on the training thread. `annotated`: its phase ranges.

    Where a window has too few samples, those of the whole run give the preparing call's share of the time before the
    forward pass.
    """
    track = _training_track(trace, threads)
    if track is None or len(marks_ns) < 2:
        return HOST_SPANS.empty()
    spans = trace.script_spans.take(trace.script_spans["track"] == track)
    tree = call_tree(trace)
    phases = host_phases(spans, tree, annotated)
    marks = (marks_ns[:-1], marks_ns[1:])
    before = intervals.intersect(phases.feeding, phases.beside(marks))
    feeding, made = _being_made(trace, track, before, phases)
    if not len(feeding[0]):
        return HOST_SPANS.empty()
    operators = script_operators(trace, track, spans, tree, phases, marks)
    called = call_of(tree)
    candidates, weight_ns = operators.take(~operators["in_optimizer"]), _weight_ns(trace, tree, spans, made)
    weight_ns = np.where(tree.in_phase | tree.is_zeroing, 0.0, weight_ns)
    no_data = (_NOT_DATA,) if len(phases.optimizer[0]) else (_NOT_DATA, _UPDATES)
    call = _preparing(trace, tree, candidates, called, weight_ns, no_data)
    if call is None:
        return HOST_SPANS.empty()
    if len(spans):
        is_beside = (called >= 0) & ~tree.in_phase  # not a sample of a phase that is over
        preparing = intervals.subtract(feeding, spans_of(spans, is_beside & (called != call)))
        earlier = intervals.subtract(
            intervals.intersect(before, spans_of(spans, is_beside & (called == call))), feeding
        )
        preparing, made = intervals.merge(preparing, earlier), intervals.merge(made, earlier)
    else:
        # The batch begins with the function that makes it, however late its first operator is.
        share, end = float(weight_ns[called == call].sum() / weight_ns[called >= 0].sum()), made[1]
        at = np.searchsorted(before[0], end, side="left") - 1
        since = np.where(at >= 0, before[0][np.maximum(at, 0)], end)
        preparing = made = intervals.union(end - (share * (end - since)).astype(np.int64), end)
    is_short = intervals.length(preparing) < MIN_SHARE * (marks_ns[-1] - marks_ns[0])
    each_ns = intervals.overlap(preparing, *marks)
    if is_short or np.median(each_ns) < MOST * each_ns.mean():  # every step needs a batch
        return HOST_SPANS.empty()
    if intervals.length(intervals.intersect(preparing, made)) < MOST * intervals.length(preparing):
        return HOST_SPANS.empty()
    frame = tree.frame[tree.aside[np.flatnonzero(called == call)[0]]]
    return occupied("dataloader", preparing, track, _row_of(trace, tree.words(int(frame))))


def taken_from_queue(trace: RankTrace, threads: Array, annotated: Mapping[Phase, Intervals], marks_ns: Array) -> Table:
    """HOST_SPANS of cause "dataloader" in which the training thread waits for batches from a thread, or a process, of
    the script: before forward passes it is mostly in a queue's `get`. Arguments as of `prepared_in_loop`."""
    tree = call_tree(trace)
    takes, track = takes_from_queue(tree), _training_track(trace, threads)
    if not takes.any() or len(marks_ns) < 2 or track is None:
        return HOST_SPANS.empty()
    spans = trace.script_spans.take(trace.script_spans["track"] == track)
    start, end = feeding = host_phases(spans, tree, annotated).feeding
    weight_ns = _weight_ns(trace, tree, spans, feeding)
    share = float(weight_ns[takes].sum() / max(1.0, weight_ns.sum()))
    waiting = intervals.union(end - (share * (end - start)).astype(np.int64), end)
    if share <= MOST or intervals.length(waiting) < MIN_SHARE * (marks_ns[-1] - marks_ns[0]):
        return HOST_SPANS.empty()
    return occupied("dataloader", waiting, track, _row_of(trace, queue_frames(tree)[0]))


def _training_track(trace: RankTrace, threads: Array) -> int | None:
    """The thread with most frames or, without any in the windows, that of the passes and the optimizer: another one may
    make batches. None where no stack is known.
    """
    tracks = trace.script_spans["track"][np.isin(trace.script_spans["track"], threads)]
    if not len(tracks) and len(trace.script_totals):
        events = trace.events
        tracks = events["track"][matches(_TRAINS, trace.strings)[events["name"]] & among(events["track"], threads)]
    return int(np.bincount(tracks).argmax()) if len(tracks) else None


def _being_made(trace: RankTrace, track: int, feeding: Intervals, phases: HostPhases) -> tuple[Intervals, Intervals]:
    """Time from the first batch-making operator to the forward pass, and to the end of the last such operator, in each
    step; both from the end of the previous step where tensors are made from Python values.
    """
    if not len(feeding[0]):
        return intervals.EMPTY, intervals.EMPTY
    events, makes = trace.events, matches(MAKES_BATCHES, trace.strings)
    of_values = np.array([text == OF_VALUES for text in trace.strings], bool)
    rows = np.flatnonzero((events["track"] == track) & makes[events["name"]])
    fetches = np.flatnonzero((events["track"] == track) & is_dataloader(trace.strings)[events["name"]])
    rows = rows[~intervals.contains(intervals.union(*times(events, fetches)), events["ts_ns"][rows])]
    at, is_of_values = events["ts_ns"][rows], of_values[events["name"][rows]]
    done = at + np.maximum(events["dur_ns"][rows], 0)
    start, end = phases.feeding
    of = intervals.row_at(phases.feeding, at)
    inside = of >= 0
    begin, last = end.copy(), start.copy()
    np.minimum.at(begin, of[inside], np.where(is_of_values, start[np.maximum(of, 0)], at)[inside])
    np.maximum.at(last, of[inside], np.minimum(done, end[np.maximum(of, 0)])[inside])
    made = intervals.union(np.minimum(begin, last), last)
    return intervals.intersect(intervals.union(begin, end), feeding), intervals.intersect(made, feeding)


def _weight_ns(trace: RankTrace, tree: CallTree, spans: Table, where: Intervals) -> Array:
    """Time in each stack outside the step's own passes, from the windows' samples or else the whole run's. A model
    that is called there evaluates."""
    weight = np.zeros(len(tree))
    start, end, row, _ = intervals.intersect_rows(spans.bounds, where)
    np.add.at(weight, spans["stack"][row], end - start)
    totals = trace.script_totals
    of_run = totals.take((totals["thread"] == "") & (totals["phase"] == "rest") & (len(spans) == 0))
    np.add.at(weight, of_run["stack"], of_run["time_ns"])
    return np.where(tree.is_loss, 0.0, weight)


def _preparing(
    trace: RankTrace,
    tree: CallTree,
    operators: Table,
    called: Array,
    weight_ns: Array,
    no_data: Sequence[re.Pattern[str]],
) -> int | None:
    """The function that prepares batches: the loop's call with the operators that make them, else its longest call,
    where the loop makes its tensors of what that returned, or iterates over it. `no_data`: names of functions that do
    something else.
    """
    operators = operators.take(~matches(CARRIES, trace.strings)[operators["name"]])
    is_making = matches(MAKES_BATCHES, trace.strings)[operators["name"]]
    columns = operators["count"], operators["time_ns"]
    if not len(operators) or any(each[is_making].sum() < MAKING_SHARE * each.sum() for each in columns):
        return None
    if matches(_COMMUNICATES, trace.strings)[operators["name"]].any():
        return None
    by_call = np.bincount(called[called >= 0], weights=weight_ns[called >= 0]) if (called >= 0).any() else np.zeros(0)
    if not by_call.any():
        return None
    makes = called[operators["stack"][is_making & (operators["stack"] != NULL)]]
    longest = int(np.argmax(by_call))
    maker = max(makes[makes >= 0].tolist(), key=lambda one: by_call[one], default=NULL)
    takes = is_making & ~matches(DRAWN, trace.strings)[operators["name"]]
    yields = bool(tree.frames["is_generator"][tree.frame[tree.aside[called == longest]]].any())
    given = maker == NULL and yields  # no stack says where operators ran: a generator was resumed for what it gives
    call = longest if given or (takes.any() and (maker == NULL or 2 * by_call[maker] < by_call[longest])) else maker
    if call == NULL:
        return None
    frames = tree.frame[tree.aside[called == call]]
    functions = {str(tree.frames["function"][frame]) for frame in frames.tolist()}
    is_other = any(pattern.search(function) for pattern in no_data for function in functions)
    return None if is_other or asks_model(trace.script_totals, tree, frames) else call


def asks_model(totals: Table, tree: CallTree, frames: Array) -> bool:
    """True where a function of these frames calls the trained model beside the passes, as a rollout does: what that
    returns needs the weights of this step, and no worker can make it before. The loop itself calls all that there is.
    `totals`: SCRIPT_TOTALS.
    """
    function = tree.function[tree.frame]
    of_model = tree.is_forward & ~tree.is_backward & (tree.is_user | tree.is_layer)[tree.frame]
    of_phase = (totals["stack"][totals["phase"] == phase] for phase in ("forward", "rest"))
    passes, beside = (tree.around_any(np.isin(np.arange(len(tree)), stacks)) for stacks in of_phase)
    trained = function[passes & of_model]
    called = tree.around_any(beside & of_model & np.isin(function, trained))
    loop = tree.around_any(tree.is_backward)
    asking = np.setdiff1d(function[called & ~tree.is_forward], function[loop])
    return bool(np.isin(tree.function[frames], asking).any())


def _row_of(trace: RankTrace, words: str) -> int:
    """Row of a text among the trace's strings."""
    return trace.strings.index(words) if words in trace.strings else NO_STRING
