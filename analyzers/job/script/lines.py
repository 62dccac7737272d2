"""Time of a rank's training thread by the line of the script it was in."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ddprof import intervals
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.facts.script.tree import CallTree, call_tree, written
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals
from ddprof.tables import NULL, Array, Table

# Of the time of a line: what one call holds nearly all of says more with the call. A tenth is what else a line does.
HOT_SHARE = 0.9


@dataclass(frozen=True)
class ScriptLine:
    """A function of the script and how long its line, or what that calls, held the host.

    `line`: of a traced frame where the function is defined, of a sampled one where it was most; None where it is not
    written in Python. `call`: the function of a library in which nearly all of the time was, in words; "" if none.
    """

    file: str
    line: int | None
    function: str
    call: str
    time_ns: float
    stacks: Array = field(default_factory=lambda: np.empty(0, np.int64), compare=False)  # rows of script_stacks
    stack_ns: Array = field(default_factory=lambda: np.empty(0), compare=False)  # of its time, in each of them

    @property
    def words(self) -> str:
        """The line for people: "train.py:88 evaluate()", with the library call that it is in."""
        where = written(self.file, self.line, self.function)
        return f"{where}, in {self.call}" if self.call else where


def has_frames(facts: RankFacts) -> bool:
    """True where the recording shows what the script ran."""
    return len(facts.script_spans) > 0 or len(facts.script_totals) > 0


def training_spans(facts: RankFacts) -> Table:
    """SCRIPT_SPANS of the training thread: the one with the step marks, else the one with most of the frames."""
    spans = facts.script_spans
    if not len(spans):
        return spans
    tracks, length = np.unique(spans["track"]), spans["end_ns"] - spans["start_ns"]
    if len(tracks) < 2:
        return spans
    if facts.main_thread is not None and facts.main_thread in tracks:
        return spans.take(spans["track"] == facts.main_thread)
    total = [int(length[spans["track"] == track].sum()) for track in tracks.tolist()]
    return spans.take(spans["track"] == tracks[int(np.argmax(total))])


def time_by_stack(facts: RankFacts, where: Intervals) -> Array:
    """Self time (ns) of each stack on the training thread within some stretches; shape (stacks,)."""
    spans = training_spans(facts)
    total = np.zeros(len(facts.script_stacks))
    start, end, row, _ = intervals.intersect_rows(spans.bounds, where)
    np.add.at(total, spans["stack"][row], end - start)
    return total


def lines_in(facts: RankFacts, where: Intervals) -> list[ScriptLine]:
    """The lines of the script in some stretches, the longest first. Library time belongs to the calling line."""
    return lines_of(facts, time_by_stack(facts, where)) if has_frames(facts) else []


def lines_of(facts: RankFacts, own_ns: Array) -> list[ScriptLine]:
    """The lines of the script by the self time (ns) of each stack, shape (stacks,); the longest first."""
    tree = call_tree(facts)
    used = np.flatnonzero(own_ns > 0)
    # A stack without a frame of the user's stands for itself, from outside in: some library runs the loop.
    folded = np.where(tree.folded[used] >= 0, tree.folded[used], tree.outermost[used])
    of_line = tree.function[tree.frame[folded]]
    lines = [_line(tree, own_ns, used[of_line == key], folded[of_line == key]) for key in np.unique(of_line).tolist()]
    return sorted(lines, key=lambda line: -line.time_ns)


def _line(tree: CallTree, own_ns: Array, stacks: Array, folded: Array) -> ScriptLine:
    """The line of some stacks that fold to one function."""
    each_ns = own_ns[stacks]
    frames = tree.frame[folded]
    # Of samples in several lines, the most frequent. Between two lines the interpreter may be in none (0).
    has_line = tree.frames["line"][frames] > 0
    weights = np.where(has_line, each_ns, 0.0) if has_line.any() else each_ns
    frame = int(np.argmax(np.bincount(frames, weights=weights)))
    line = int(tree.frames["line"][frame])
    return ScriptLine(
        file=str(tree.frames["file"][frame]),
        line=None if line == NULL else line,
        function=str(tree.frames["function"][frame]),
        call=_hot_call(tree, each_ns, stacks, folded),
        time_ns=float(each_ns.sum()),
        stacks=stacks,
        stack_ns=each_ns,
    )


def _hot_call(tree: CallTree, each_ns: Array, stacks: Array, folded: Array) -> str:
    """The innermost call below the user's frames that holds HOT_SHARE of their time, in words; "" if none does."""
    below = [_calls_below(tree, stack, end) for stack, end in zip(stacks.tolist(), folded.tolist(), strict=True)]
    enough, innermost, level = HOT_SHARE * float(each_ns.sum()), "", 0
    while True:
        time_ns: dict[str, float] = {}
        for calls, taken in zip(below, each_ns.tolist(), strict=True):
            if len(calls) > level:
                words = tree.words(calls[level])
                time_ns[words] = time_ns.get(words, 0.0) + taken
        hottest = max(time_ns, key=lambda words: time_ns[words], default="")
        if not hottest or time_ns[hottest] < enough:
            return innermost
        innermost, level = hottest, level + 1


def _calls_below(tree: CallTree, stack: int, end: int) -> list[int]:
    """Frames of a stack below the stack `end`, outermost first, without this tool's own."""
    frames, is_profiler = [], tree.is_profiler_frame
    while stack not in (end, -1):
        if not is_profiler[tree.frame[stack]]:
            frames.append(int(tree.frame[stack]))
        stack = int(tree.outer[stack])
    return frames[::-1]


# Files of the script by the names that every finding shows.


def shown_place(facts: RankFacts, source_line: str) -> str:
    """A line of the script ("file:number") by the name of its file (`shown_file`)."""
    file, colon, number = source_line.rpartition(":")
    return f"{shown_file(facts, file)}:{number}" if colon else source_line


def shown_file(facts: RankFacts, file: str) -> str:
    """The name of a file as stacks have it, without its prefix of sys.path; where no stack lies in it, its last part.
    Longer where that would name another file of the rank's records, too.
    """
    plain = _parts(file)
    least = max((len(short) for short in _framed(facts) if plain[-len(short) :] == short), default=1)
    others = {other for other in _recorded(facts) if other != plain}
    ends = (plain[-length:] for length in range(least, len(plain)))
    return "/".join(next((end for end in ends if not any(other[-len(end) :] == end for other in others)), plain))


def _parts(file: str) -> tuple[str, ...]:
    return tuple(file.replace("\\", "/").split("/"))


@remembered
def _framed(facts: RankFacts) -> set[tuple[str, ...]]:
    frames = facts.script_frames
    return _all_parts(frames["file"][frames["is_user"].astype(bool)].tolist())


@remembered
def _recorded(facts: RankFacts) -> set[tuple[str, ...]]:
    sidecar = facts.sidecar
    waits = [wait.source_line.rpartition(":")[0] for wait in sidecar.syncs]
    calls = [*(call.file for call in sidecar.window_calls), *(call.file for call in sidecar.last_calls)]
    return _all_parts([*waits, *calls])


def _all_parts(files: Iterable[str]) -> set[tuple[str, ...]]:
    return {_parts(file) for file in files if file}
