"""The verdict in one plain sentence: ranks, call, group, line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ddprof.slices.hangs import model
from ddprof.slices.hangs.judging.causes import FirstCause
from ddprof.slices.hangs.judging.exits import stuck_workers, waits_for_store
from ddprof.slices.hangs.model import Call, Group, RankEvidence, StackFrame, Stuck, Variant, is_library, user_frame
from ddprof.units import format_ranks

_SHOWN = 160  # characters of an exception's message
_EXITS = ("sys.exit", "exit", "quit", "os._exit")
_QUOTED = re.compile(r"(?:Original )?Traceback \(most recent call last\):\n.*\n", re.DOTALL)
_QUOTED_FRAME = re.compile(r'File "([^"\n]+)", line (\d{1,9}), in (\S+)')


def sentence(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    """The first cause and who waits because of it, in one sentence. `of`: evidence by rank; `groups`: by name."""
    return _SAY[cause.kind](cause, of, groups)


def line_words(frame: StackFrame | None, between: str = " in ") -> str:
    """The line of a frame: "train.py:88 in evaluate()"; "" where no line is known."""
    if frame is None:
        return ""
    name = frame.file.replace("\\", "/").rsplit("/", 1)[-1]
    inside = f"{between}{frame.function}()" if frame.function and not frame.function.startswith("<") else ""
    return f"{name}:{frame.line}{inside}"


def _at(frame: StackFrame | None) -> str:
    """The line of a frame in brackets, " (train.py:88 in evaluate())"; "" where no line is known."""
    line = line_words(frame)
    return f" ({line})" if line else ""


def _wait(ranks: tuple[int, ...]) -> str:
    """Who waits: "ranks 0, 2 wait"."""
    return f"{format_ranks(ranks)} {by_count(len(ranks), 'waits', 'wait')}"


def call_words(stuck: Stuck, groups: Mapping[str, Group]) -> str:
    """The call in words: "all_reduce 13 of the default group"."""
    if stuck.is_message:
        return f"{stuck.op} (message {stuck.number} between the two)"
    number = f" {stuck.number}" if stuck.group or stuck.number > 1 else ""
    return f"{stuck.op}{number}{group_words(stuck.group, groups)}"


def group_words(name: str, groups: Mapping[str, Group]) -> str:
    """The group in words: " of the default group", " of group tp (ranks 0, 1)"; "" without a name."""
    group = groups.get(name)
    if name == "" or group is None:
        return "" if name == "" else f" of group {name}"
    if group.description == "default_pg" or (name == "0" and not group.description):
        return " of the default group"
    ranks = f" ({format_ranks(group.ranks)})" if group.ranks else ""
    return f" of group {group.description or name}{ranks}"


def where_of(evidence: RankEvidence | None) -> str:
    """Last position of a rank: "is at train.py:31 in load()"; "" where unknown."""
    line = line_words(user_frame(evidence.frames)) if evidence is not None else ""
    return f"is at {line}{_workers(evidence)}" if line and evidence is not None else ""


def _workers(evidence: RankEvidence) -> str:
    """A rank's stuck workers: " and waits for its loader, whose worker 0 is at train.py:31 in __getitem__()", or ""."""
    by_line: dict[str, list[int]] = {}
    for worker in stuck_workers(evidence):
        by_line.setdefault(line_words(user_frame(worker.frames)), []).append(worker.worker)
    phrases = []
    for line, numbers in by_line.items():
        who, are = by_count(len(numbers), "worker", "workers"), by_count(len(numbers), "is", "are")
        phrases.append(f"{who} {', '.join(map(str, numbers))} {are} at {line}")
    return f" and waits for its loader, whose {' and '.join(phrases)}" if phrases else ""


def by_count(count: int, singular: str, plural: str) -> str:
    """The singular or the plural word for `count` of them."""
    return singular if count == 1 else plural


def _who(ranks: tuple[int, ...]) -> str:
    words = format_ranks(ranks)
    return words[0].upper() + words[1:]


def _waiters(stuck: Stuck | None, groups: Mapping[str, Group], but: tuple[int, ...] = ()) -> str:
    """The waiting ranks: "ranks 0, 2 wait for it in all_reduce 13 of the default group (train.py:40)"; "" if none."""
    ranks = () if stuck is None else tuple(rank for rank in stuck.entered if rank not in but)
    if stuck is None or not ranks:
        return ""
    return f"{_wait(ranks)} for {by_count(len(but), 'it', 'them')} in {call_words(stuck, groups)}{_at(stuck.frame)}"


def _ended(text: str, waiters: str) -> str:
    return f"{text}; {waiters}." if waiters else f"{text}."


def _killed(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    first = of[cause.ranks[0]]
    called = next((call.frames for call in reversed(first.calls) if call.frames), ())
    line = line_words(user_frame(first.frames) or user_frame(called))
    why = first.ending.error and f" ({first.ending.error})"
    why = why or " without a word (SIGKILL, out of memory, or a crash in C)"
    at = f", last seen at {line}" if line else ""
    died = f"{_who(cause.ranks)} {by_count(len(cause.ranks), 'was', 'were')} killed{why}{at}"
    return _ended(died, _waiters(cause.stuck, groups, cause.ranks))


def _error(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    ending = of[cause.ranks[0]].ending
    line = line_words(user_frame(ending.frames))
    message = " ".join(_QUOTED.sub(_quoted, ending.message.rstrip() + "\n").split())
    message = f": {message[:_SHOWN]}{' [...]' if len(message) > _SHOWN else ''}" if message else ""
    did = f"called {ending.error}" if ending.error in _EXITS else f"raised {ending.error}"
    text = f"{_who(cause.ranks)} {did}{f' at {line}' if line else ''}{message}"
    return _ended(text.rstrip("."), _waiters(cause.stuck, groups, cause.ranks))


def _quoted(traceback: re.Match[str]) -> str:
    """The line and the last words of a traceback that a message quotes, as a loader's of its worker's."""
    frames = [StackFrame(file, int(line), name) for file, line, name in _QUOTED_FRAME.findall(traceback[0])]
    return f"{line_words(user_frame(frames[::-1]))}: {traceback[0].rstrip().splitlines()[-1]}"


def _mismatch(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    stuck = _known(cause)
    variants = "; ".join(
        f"{format_ranks(v.ranks)} {by_count(len(v.ranks), 'calls', 'call')} {_variant(v, stuck)}"
        for v in stuck.variants
    )
    what = (
        f"message {stuck.number} between them"
        if stuck.is_message
        else f"collective {stuck.number}{group_words(stuck.group, groups)}"
    )
    return f"Ranks disagree about the {stuck.differs} of {what}: {variants}."


def _variant(variant: Variant, stuck: Stuck) -> str:
    call = variant.call
    tensors = {"shape": _shapes(call, stuck), "dtype": ", ".join(call.dtypes)}.get(stuck.differs, "")
    return f"{call.op}{f' of {tensors}' if tensors else ''}{_at(user_frame(call.frames))}"


def _shapes(call: Call, stuck: Stuck) -> str:
    """Shapes of the tensors that a call gives; of those that it takes, too, where the ranks give alike."""
    given, taken = _listed(call.input_sizes), _listed(call.output_sizes)
    give_alike = len({v.call.input_sizes for v in stuck.variants} - {()}) == 1
    return f"{given} into {taken}" if given and taken and give_alike else given or taken


def _listed(sizes: Sequence[tuple[int, ...]]) -> str:
    return ", ".join(str(list(size)) if size else "a scalar" for size in sizes[:4]) + (
        ", ..." if len(sizes) > 4 else ""
    )


def _skipped(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    stuck = _known(cause)
    first = stuck.passed[0]
    ranks = tuple(p.rank for p in stuck.passed)
    waiting = tuple(rank for rank in stuck.entered if rank not in ranks)
    held = f"; {_wait(waiting)} for {by_count(len(ranks), 'it', 'them')}" if waiting else ""
    verb = by_count(len(ranks), "makes", "make")
    of_group = group_words(stuck.group, groups)
    if first.is_extra:
        return f"{_who(ranks)} {verb} one call more than the others{of_group}: {_call_at(first.instead)}{held}."
    there = f" in collective {first.left_out.number}" if first.left_out.number else ""
    without = f"{_call_at(first.left_out)}{of_group}{held}{there}"
    return f"{_who(ranks)} went on to {_call_at(first.instead)} without {without}."


def _call_at(call: Call) -> str:
    return f"{call.op}{_at(user_frame(call.frames))}"


def _not_entered(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    stuck = _known(cause)
    if all(rank not in of for rank in cause.ranks):
        return (
            f"{_waiters(stuck, groups, cause.ranks).capitalize()}; of {format_ranks(cause.ranks)} nothing was recorded."
        )
    where = where_of(of.get(cause.ranks[0]))
    place = f": {by_count(len(cause.ranks), 'it', 'the first')} {where}" if where else ""
    text = f"{_who(cause.ranks)} did not enter {call_words(stuck, groups)}{_at(stuck.frame)}{place}"
    return f"{text}; {_wait(stuck.entered)} there."


def _ended_early(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    line = user_frame(of[cause.ranks[0]].frames)
    seen = f", last seen at {line_words(line)}" if line is not None and not is_library(line) else ""
    text = f"{_who(cause.ranks)} ended normally{seen}, without the last call of the others"
    return _ended(text, _waiters(cause.stuck, groups, cause.ranks))


def _message(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    stuck = _known(cause)
    waiting, other = stuck.entered[0], cause.ranks[0]
    at, where = _at(stuck.frame), where_of(of.get(other))
    place = f"; rank {other} {where}" if where else ""
    if stuck.op.endswith("send"):
        return f"Rank {waiting} sends message {stuck.number} to rank {other}{at}, which never asks for it{place}."
    return f"Rank {waiting} waits for message {stuck.number} from rank {other}{at}, which was never sent{place}."


def _crossed(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    calls: dict[tuple[str, str, str], list[int]] = {}  # operation, group, line -> ranks
    for rank in cause.ranks:
        last = next((call for call in of[rank].calls if not call.done), None)
        if last is not None:
            calls.setdefault((last.op, last.group, _at(user_frame(last.frames))), []).append(rank)
    pairs = "; ".join(
        f"{format_ranks(ranks)} in {op}{group_words(group, groups)}{at}" for (op, group, at), ranks in calls.items()
    )
    return f"{_who(cause.ranks)} wait for one another: {pairs}."


def _inside(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    stuck = _known(cause)
    place = _at(stuck.frame)
    if stuck.unseen:
        text = f"{_who(stuck.entered)} {by_count(len(stuck.entered), 'waits', 'wait')} in {call_words(stuck, groups)}"
        return f"{text}{place}; of {format_ranks(stuck.unseen)} nothing was recorded."
    late = tuple(rank for rank in stuck.entered if _not_started(of[rank], stuck))
    are = by_count(len(stuck.entered), "is", "are all")
    text = f"{_who(stuck.entered)} {are} inside {call_words(stuck, groups)}{place}, which does not end"
    if late and len(late) < len(stuck.entered):
        return f"{text}: on {format_ranks(late)} its kernel has not begun, something before it holds the device."
    return f"{text}: the connection between them, or work before it on a device, is to blame."


def _not_started(evidence: RankEvidence, stuck: Stuck) -> bool:
    return any(c.group == stuck.group and c.number == stuck.number and c.started is False for c in evidence.calls)


def _store(cause: FirstCause, of: Mapping[int, RankEvidence], groups: Mapping[str, Group]) -> str:
    first = of[cause.ranks[0]]
    waiting = cause.ranks if waits_for_store(first) else tuple(rank for rank in of if rank not in cause.ranks)
    at = _at(user_frame(of[waiting[0]].frames))
    text = f"{_who(waiting)} {by_count(len(waiting), 'waits', 'wait')} for the store{at}"
    if waiting == cause.ranks:
        return _ended(text, _waiters(cause.stuck, groups, cause.ranks))
    where = where_of(first)
    return f"{text}, for what is to come from {format_ranks(cause.ranks)}{f', which {where}' if where else ''}."


def _known(cause: FirstCause) -> Stuck:
    if cause.stuck is None:
        raise ValueError(f"nothing is stuck because of {cause.kind}")
    return cause.stuck


_SAY = {
    model.KILLED: _killed,
    model.ERROR: _error,
    model.MISMATCH: _mismatch,
    model.SKIPPED: _skipped,
    model.NOT_ENTERED: _not_entered,
    model.ENDED: _ended_early,
    model.MESSAGE: _message,
    model.CROSSED: _crossed,
    model.INSIDE: _inside,
    model.STORE: _store,
}
