"""Evidence on each rank from the user's paths: run folders, folders of dumps and stacks, single files.

Stacks are read as faulthandler or `py-spy dump` write them.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ddprof.errors import NoUsableInput
from ddprof.flight_recorder import CallDump
from ddprof.model import HealthNote
from ddprof.readers.files.names import file_name, name_of_ours, rank_in_name
from ddprof.readers.files.opening import UNREADABLE, one_line
from ddprof.readers.files.remote import is_url, walk_remote
from ddprof.readers.files.safe_pickle import UnsafePickle
from ddprof.readers.files.streams import open_blocks, read_small
from ddprof.readers.side_files.lenient import load_dump, parse, unfit_note
from ddprof.readers.side_files.manifests import Manifest, run_end
from ddprof.readers.side_files.stacks import read_stacks
from ddprof.slices.hangs.model import Call, Ending, Group, RankEvidence, StackFrame, WorkerEvidence
from ddprof.slices.hangs.reading.dumps import calls_in, groups_in
from ddprof.slices.hangs.reading.left import Left, as_recorded, calls_of, ending_of, groups_of

_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_DUMP_MARKS = (b"collective_seq_id", b"pg_status", b"nccl_comm_state")
_OTHER = re.compile(r"\.(?:ring|calls|tmp|gz|(?<!\.stacks\.)jsonl|html|py|csv|md|png|svg|parquet)$|\.pt\.trace\.json$")
_NUMBER_AT_END = re.compile(r"(\d+)$")  # torch names a dump PREFIX + rank
_SAMPLED_SUFFIX = ".stacks.jsonl"
_WORKER = re.compile(r"\.worker(\d+)\.\d+\.stacks\.jsonl$")
_NESTED = 4  # calls of torch.distributed inside one another: `broadcast_object_list` makes two broadcasts
LARGEST_TEXT_BYTES = 4 << 20  # of a file of stacks: ten thousand threads


@dataclass
class _Gathered:
    """Evidence on one rank so far; of a restarted rank only its last life."""

    restart: int = 0
    left: Left | None = None
    asked: Left | None = None
    last: Left | None = None  # the latest end of a process of this rank that has no sidecar
    recorded: tuple[Call, ...] | None = None
    recorded_groups: dict[str, Group] = field(default_factory=dict)
    frames: tuple[StackFrame, ...] = ()
    frames_ns: int = 0  # when the file of stacks was written last
    fatal: str = ""
    sampled: WorkerEvidence | None = None
    workers: dict[int, WorkerEvidence] = field(default_factory=dict)


@dataclass(frozen=True)
class Gathered:
    """Evidence on each rank, in rank order. `hang_seen`: the job was seen hanging while it ran. `end`: of the job by
    its manifest; None without one.
    """

    ranks: tuple[RankEvidence, ...]
    notes: tuple[HealthNote, ...]
    hang_seen: bool = False
    end: Manifest | None = None


def collect(paths: Sequence[str]) -> Gathered:
    """Evidence on each rank. Raises NoUsableInput where a path does not exist or is not readable."""
    notes: list[HealthNote] = []
    by_rank: dict[int, _Gathered] = {}
    silent: dict[int | None, str] = {}  # a rank -> a file of its name that tells nothing
    for path in _files(paths, notes):
        try:
            if not _take(path, by_rank, notes):
                silent.setdefault(rank_in_name(file_name(path)), path)
        except (ValueError, TypeError, UnsafePickle, NoUsableInput) as error:
            notes.append(HealthNote(f"{path}: not usable ({one_line(error)})", "left out"))
    of_nobody = [path for rank, path in silent.items() if rank is not None and rank not in by_rank]
    notes += [HealthNote(f"{path}: neither a dump of calls nor stacks", "left out") for path in of_nobody]
    ends = [end for path in paths if (end := run_end(path)) is not None]
    is_recorded = any(
        of.recorded is not None or (of.asked is not None and of.asked.flight_recorder is not None)
        for of in by_rank.values()
    )
    told = any(end.hang and end.hang.get("kind") != "killed" for end in ends)
    ranks = [_evidence(rank, by_rank[rank], is_recorded) for rank in sorted(by_rank)]
    return Gathered(
        ranks=_as_they_hung(ranks, {rank for rank, of in by_rank.items() if of.asked is not None}, told),
        notes=tuple(notes),
        hang_seen=any(end.hang for end in ends),
        end=max(ends, key=lambda end: end.exit_code is not None, default=None),
    )


def _files(paths: Sequence[str], notes: list[HealthNote]) -> Iterator[str]:
    """Files that may be evidence, including texts that no trace analysis reads."""
    for path in paths:
        if is_url(path):
            yield from _stored(path)
            continue
        if not os.path.isdir(path):
            if not os.path.exists(path):
                raise NoUsableInput(f"{path}: no such file or folder")
            yield path
            continue

        def left_out(error: OSError) -> None:
            notes.append(HealthNote(f"{error.filename}: this folder cannot be read: {one_line(error)}", "left out"))

        for folder, folders, names in os.walk(path, onerror=left_out):
            folders[:] = sorted(name for name in folders if not name.startswith((".", "__")))
            yield from (os.path.join(folder, name) for name in sorted(names) if _may_tell(name))


def _may_tell(name: str) -> bool:
    ours = name_of_ours(name)
    is_of_window = ours is not None and ours["window"] is not None  # which says nothing of the end
    return not (name.startswith(".") or _OTHER.search(name) or is_of_window)


def _stored(url: str) -> Iterator[str]:
    try:
        yield from (file.url for file in walk_remote(url) if _may_tell(file_name(file.url)))
    except UNREADABLE as error:
        raise NoUsableInput(f"{url}: cannot be read: {one_line(error)}") from error


def _take(path: str, by_rank: dict[int, _Gathered], notes: list[HealthNote]) -> bool:
    """True where the file is of a kind that tells of a rank."""
    name = file_name(path)
    if name.endswith((".sidecar.json", ".where.json", ".end.json")):
        _take_left(path, name, by_rank, notes)
        return True
    if name.endswith(_SAMPLED_SUFFIX):
        _take_sampled(path, name, by_rank, notes)
        return True
    head = _head(path)
    is_pickle = _PICKLE.match(head) is not None
    if (is_pickle or head.lstrip()[:1] == b"{") and any(mark in head for mark in _DUMP_MARKS):
        _take_dump(path, name, by_rank, notes)
        return True
    if not is_pickle and has_stacks(head.decode("utf-8", "replace")):
        _take_stacks(path, name, by_rank, notes)
        return True
    return False


def _take_stacks(path: str, name: str, by_rank: dict[int, _Gathered], notes: list[HealthNote]) -> None:
    stacks = parse_stacks(read_small(path)[-LARGEST_TEXT_BYTES:].decode("utf-8", "replace"))
    of = _of(_rank(name), name, by_rank)
    if of is not None:
        of.frames, of.fatal = stacks.frames or of.frames, stacks.fatal or of.fatal
        of.frames_ns = 0 if is_url(path) else os.stat(path).st_mtime_ns  # a store knows when it was uploaded
    else:
        notes.append(HealthNote(f"{path}: stacks without a rank: the file name states none", "left out"))


def _take_sampled(path: str, name: str, by_rank: dict[int, _Gathered], notes: list[HealthNote]) -> None:
    """Take the last sampled stack of a rank, or of a worker of its loader (docs/run-folder.md)."""
    processes, unread = read_stacks([path])
    notes += unread
    of, last = _of(_rank(name), name, by_rank), processes[0].seen_last() if processes else None
    if of is None or last is None:
        return
    at_ns, frames = last
    named = _WORKER.search(name)
    stack = tuple(StackFrame(file, line, function) for file, function, line in frames)
    seen = WorkerEvidence(int(named[1]) if named else -1, at_ns, stack)
    if not named:
        of.sampled = seen
    elif seen.worker not in of.workers or of.workers[seen.worker].seen_ns < at_ns:  # made anew each epoch
        of.workers[seen.worker] = seen


def _take_left(path: str, name: str, by_rank: dict[int, _Gathered], notes: list[HealthNote]) -> None:
    left, unfit = parse(read_small(path), Left)
    notes += unfit_note(path, unfit)
    of = _of(_rank(name) if left.rank is None else left.rank, name, by_rank)
    if of is not None and name.endswith(".sidecar.json"):
        of.left = left
    elif of is not None and name.endswith(".end.json"):
        of.last = max(of.last or left, left, key=_ended_ns)
    elif of is not None:
        of.asked = left


def _ended_ns(left: Left) -> int:
    return (left.end.at_ns if left.end is not None else None) or 0


def _take_dump(path: str, name: str, by_rank: dict[int, _Gathered], notes: list[HealthNote]) -> None:
    dump, unfit = load_dump(read_small(path), CallDump)
    notes += unfit_note(path, unfit)
    rank = _rank(name)
    of = _of(rank, name, by_rank)
    if of is None:
        notes.append(HealthNote(f"{path}: a dump without a rank: the file name states none", "left out"))
        return
    if of.recorded is None or name.endswith(".json"):
        of.recorded_groups = groups_in(dump)
        of.recorded = calls_in(dump, of.recorded_groups)


def _rank(name: str) -> int | None:
    rank = rank_in_name(name)
    match = _NUMBER_AT_END.search(name) if rank is None else None
    return int(match[1]) if match and len(match[1]) < 7 else rank


def _of(rank: int | None, name: str, by_rank: dict[int, _Gathered]) -> _Gathered | None:
    """The rank's evidence to extend; None where the rank is unknown, or has restarted since."""
    if rank is None:
        return None
    ours = name_of_ours(name)
    restart = int(ours["restart"]) if ours else 0
    if rank not in by_rank or by_rank[rank].restart < restart:
        by_rank[rank] = _Gathered(restart)
    return by_rank[rank] if by_rank[rank].restart == restart or not ours else None


def _head(path: str) -> bytes:
    with open_blocks(path) as blocks:
        return next(iter(blocks), b"")[: 1 << 16]


def _evidence(rank: int, of: _Gathered, is_recorded: bool) -> RankEvidence:
    left, asked = of.left or of.last or Left(), of.asked or Left()
    if asked.flight_recorder is not None and _is_latest(asked, of):
        of.recorded_groups = groups_in(asked.flight_recorder)
        of.recorded = calls_in(asked.flight_recorder, of.recorded_groups)
    ending = ending_of(left)
    groups = {**of.recorded_groups, **groups_of(asked), **groups_of(left)}
    told = left if left.calls else asked
    logged = (as_recorded(told) if is_recorded and of.recorded is None else ()) or calls_of(told)
    is_numbered = any(call.sequence for call in told.calls)
    if of.fatal:
        ending = Ending("killed", ending.at_ns, of.fatal, "", of.frames)
    here = ending.frames or _told_last(of, asked) or _seen_after(logged, of.sampled)
    return RankEvidence(
        rank=rank,
        host=left.host or asked.host,
        world_size=left.world_size or asked.world_size,
        calls=logged if of.recorded is None else _together(of.recorded, logged),
        groups={name: group if group.ranks else of.recorded_groups.get(name, group) for name, group in groups.items()},
        frames=here,
        ending=ending,
        steps=max((n for n in (left.steps_total, asked.steps_total) if n is not None), default=None),
        seen_ns=ending.at_ns or (_alive_ns(of, asked) if ending.how == "killed" else asked.at_ns),
        is_partial=is_recorded and of.recorded is None and not is_numbered,
        has_calls=of.recorded is not None or bool(logged) or left.end is not None,
        workers=tuple(of.workers[worker] for worker in sorted(of.workers)),
    )


def _as_they_hung(ranks: list[RankEvidence], answered: set[int], told: bool) -> tuple[RankEvidence, ...]:
    """The evidence, with deaths counted as ends of ranks that had `answered` while nothing moved: where the hang was
    `told`, or where all ranks died so, a death came after it. Answers are kept only of a job that moved no more.
    """
    dead = {e.rank for e in ranks if e.ending.how == "killed" and not e.ending.error}
    if not told and (len(ranks) < 2 or len(dead) < len(ranks) or dead - answered):
        return tuple(ranks)
    ended = dead & answered
    return tuple(replace(e, ending=replace(e.ending, how="ended")) if e.rank in ended else e for e in ranks)


def _told_last(of: _Gathered, asked: Left) -> tuple[StackFrame, ...]:
    """The training thread's latest stack: from the rank itself, or from a file of stacks."""
    answered = asked.frames
    return answered if answered and (asked.at_ns or 0) > of.frames_ns else of.frames or answered


def _alive_ns(of: _Gathered, asked: Left) -> int | None:
    """Last sign of life of a rank without a recorded end; None without any."""
    return max(asked.at_ns or 0, of.frames_ns, of.sampled.seen_ns if of.sampled else 0) or None


def _seen_after(calls: tuple[Call, ...], sampled: WorkerEvidence | None) -> tuple[StackFrame, ...]:
    """The last sampled stack, unless a later call shows better where the rank was."""
    last_ns = max((call.entered_ns or 0 for call in calls), default=0)
    return sampled.frames if sampled is not None and sampled.seen_ns > last_ns else ()


def _is_latest(asked: Left, of: _Gathered) -> bool:
    """True where the calls reported during the hang are of the rank's last step. While ranks are ended one by one, gloo
    counts calls that were cut off as ended.
    """
    if of.left is None or of.recorded is None or asked.steps_total is None:
        return True
    return of.left.steps_total is not None and of.left.steps_total - asked.steps_total <= 1


def _together(recorded: tuple[Call, ...], logged: tuple[Call, ...]) -> tuple[Call, ...]:
    """The flight recorder's calls, with the messages that it does not record (gloo's)."""
    recorded = with_lines(recorded, logged)
    if any(call.peer is not None for call in recorded):
        return recorded
    return (*recorded, *(call for call in logged if call.peer is not None))


def with_lines(recorded: Sequence[Call], logged: Sequence[Call]) -> tuple[Call, ...]:
    """The recorded calls; one without a stack gets that of the rank's own call under way at its start.

    Capture asks torch for stacks only where that imports nothing (capture/window/flight_recorder.py). Calls of the
    script lie, in time, inside a call of its log; those of DDP and FSDP do not, and have no line.
    """
    of_group: dict[str, list[Call]] = {}
    for call in sorted((c for c in logged if c.peer is None and c.frames and c.entered_ns), key=_entered):
        of_group.setdefault(call.group, []).append(call)
    return tuple(call if call.frames else _with_line(call, of_group.get(call.group, [])) for call in recorded)


def _with_line(call: Call, logged: Sequence[Call]) -> Call:
    began_ns = _entered(call)
    at = bisect_right(logged, began_ns, key=_entered)
    for outer in reversed(logged[max(at - _NESTED, 0) : at]):
        if not outer.done or (outer.left_ns or 0) >= began_ns:
            return replace(call, frames=outer.frames)
    return call


def _entered(call: Call) -> int:
    return call.entered_ns or 0


# faulthandler: `Thread 0x00007f (most recent call first):` or `Current thread 0x... [name] (...)`, then
# `  File "train.py", line 12 in load`.
_FAULTHANDLER_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+).*most recent call")
_FAULTHANDLER_FRAME = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
_FATAL = re.compile(r"^Fatal Python error: (?P<what>.*)$")
# py-spy: `Thread 1234 (idle): "MainThread"`, then `    load (train.py:12)`.
_PY_SPY_THREAD = re.compile(r'^Thread (?P<id>\S+) \((?P<state>[^)]*)\)(?:: "(?P<name>.*)")?$')
_PY_SPY_FRAME = re.compile(r"^ +(?P<function>.+) \((?P<file>.+):(?P<line>\d+)\)$")
MAX_FRAMES = 1024  # of one thread; Python's own limit of recursion is 1,000


@dataclass(frozen=True)
class StackText:
    """The training thread's frames in a text's last dump, innermost first, and the fatal error behind it ("": none)."""

    frames: tuple[StackFrame, ...]
    fatal: str = ""


def has_stacks(head: str) -> bool:
    """True where a text begins as one of the two formats."""
    lines = head.splitlines()
    return any(_FAULTHANDLER_THREAD.match(line) or _PY_SPY_THREAD.match(line) for line in lines)


def parse_stacks(text: str) -> StackText:
    """The last dump in the text, as a process may have been dumped several times. The training thread is the main one,
    which faulthandler lists last as the oldest.
    """
    threads: list[tuple[bool, list[StackFrame]]] = []
    fatal = ""
    seen: set[str] = set()
    for line in text.splitlines():
        if match := _FATAL.match(line):
            fatal = match["what"]
            threads, seen = [], set()
        elif match := _FAULTHANDLER_THREAD.match(line) or _PY_SPY_THREAD.match(line):
            if match[1] in seen:  # the next dump begins
                threads, seen = [], set()
            seen.add(match[1])
            threads.append((match.re is _PY_SPY_THREAD and match["name"] == "MainThread", []))
        elif threads and (frame := _frame(line)) and len(threads[-1][1]) < MAX_FRAMES:
            threads[-1][1].append(frame)
    main = [frames for is_main, frames in threads if is_main] or [frames for _, frames in threads[-1:]] or [[]]
    return StackText(tuple(main[0]), fatal)


def _frame(line: str) -> StackFrame | None:
    match = _FAULTHANDLER_FRAME.match(line) or _PY_SPY_FRAME.match(line)
    return StackFrame(match["file"], int(match["line"]), match["function"].strip()) if match else None
