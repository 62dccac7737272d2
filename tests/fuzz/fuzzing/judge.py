"""Failures of an answer: each has a kind, a place in ddprof (where it has one) and a sentence."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fuzzing import reports
from fuzzing.answers import Answer
from fuzzing.cases import JSON, Case
from fuzzing.counts import Touched, touched
from fuzzing.mutations import SAME_RECORDING
from fuzzing.seeds import SAVED
from fuzzing.tree import Vanishing, unpacked

READING = ("analyze", "report", "export", "compare", "status")  # others may refuse what the input does not hold
GOOD_CODES = (0, 2, 3, 4)
MOST_CPU_S = 20.0
MOST_BYTES = 1 << 30
LONGEST_LINE = 600
SLACK_EVENTS = 3  # at the edges of damage
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Failure:
    """Something that must not be. Failures of one kind and place are one group."""

    kind: str
    place: str
    text: str


@dataclass(frozen=True)
class Bounds:
    cpu_s: float = MOST_CPU_S
    peak_bytes: int = MOST_BYTES


@dataclass(frozen=True)
class Sound:
    """Result of the seed's own analysis: its document (None where it has none), events kept by path in its tree."""

    document: dict[str, object] | None
    kept: dict[str, int]


def of_answer(answer: Answer, case: Case, folder: Path, bounds: Bounds) -> Iterator[Failure]:
    """Failures that show in one answer alone."""
    if answer.error is not None:
        place, what = answer.error
        yield Failure("memory" if what.startswith("MemoryError") else "traceback", place, what)
        return
    if answer.code not in GOOD_CODES:
        yield Failure("exit code", "", f"{answer.code}: {answer.stderr[:200]}")
    if answer.code in (2, 4):
        yield from _of_line(answer, case, folder)
    for place, what in sorted(set(answer.warned)):
        yield Failure("warning", place, what)
    if answer.cpu_s > bounds.cpu_s:
        yield Failure("slow", "", f"{answer.cpu_s:.1f} s of CPU time")
    if answer.peak_bytes > bounds.peak_bytes:
        yield Failure("memory", "", f"{answer.peak_bytes >> 20} MB")
    if answer.code in (0, 3):
        if case.command == JSON:
            for defect in reports.defects(answer.stdout, is_ours=case.seed != SAVED):
                yield Failure("report", "", defect)
        yield from _of_characters(answer, folder)


def _of_line(answer: Answer, case: Case, folder: Path) -> Iterator[Failure]:
    """Exits 2 and 4 say one line that names the input."""
    lines = answer.stderr.splitlines()
    if len(lines) != 1 or not lines[0].startswith("ddprof: "):
        yield Failure("line", "", f"exit {answer.code} with {len(lines)} lines: {answer.stderr[:300]!r}")
        return
    if case.command[0] not in READING or "--redact" in case.command:
        return
    names = {case.target, *(name.rsplit("/", 1)[-1] for name in case.tree)}
    names |= {name.encode("utf-8", "backslashreplace").decode() for name in names}
    if not any(name in lines[0] for name in names):
        yield Failure("line", "", f"names no file: {lines[0][:300]!r}")
    elif len(lines[0]) - len(str(folder)) - max(map(len, case.tree), default=0) > LONGEST_LINE:
        yield Failure("line", "", f"{len(lines[0])} characters: {lines[0][:200]!r}")
    if _CONTROL.search(lines[0]):
        yield Failure("escape", "", f"control characters in the error line: {lines[0][:200]!r}")


def _of_characters(answer: Answer, folder: Path) -> Iterator[Failure]:
    """No control characters on the terminal or in text files, no markup of others in pages."""
    texts = {"stdout": answer.stdout, "stderr": answer.stderr}
    for path in (folder / "out").rglob("*"):
        if path.suffix in (".csv", ".md", ".html"):
            texts[path.name] = path.read_text(encoding="utf-8", errors="replace")
    for name, text in texts.items():
        if name.endswith(".html"):
            if "<script>alert(1)" in text:
                yield Failure("escape", "", f"markup of a trace in {name}")
        elif found := _CONTROL.search(text):
            around = text[max(0, found.start() - 60) : found.end() + 30]
            yield Failure("escape", "", f"{found[0]!r} in {name}: {around!r}")


def of_second(first: Answer, second: Answer) -> Iterator[Failure]:
    """Failures of a repeated question, answered from a cache that may be damaged: the answer must be equal."""
    if first.error is None and second.error is None and _without_cache_note(first) != _without_cache_note(second):
        pairs = zip(first.stdout.splitlines(), second.stdout.splitlines(), strict=False)
        unequal = (f"{a.strip()[:100]!r} -> {b.strip()[:100]!r}" for a, b in pairs if a != b)
        where = next(unequal, second.stderr[:200])
        yield Failure("cache", "", f"exit {first.code}, then {second.code}: {where}")


def _without_cache_note(answer: Answer) -> tuple[int, str]:
    lines = [line for line in answer.stdout.splitlines() if "facts could not be cached" not in line]
    return answer.code, "\n".join(lines)


def of_recording(answer: Answer, case: Case, sound: Sound) -> Iterator[Failure]:
    """Packed in another way, the same recording gives the same numbers."""
    if not set(case.mutation.split("+")) <= SAME_RECORDING or case.target != "run" or sound.document is None:
        return
    if "captured" in case.seed or case.seed == SAVED:
        return  # side files and saved reports are not read inside archives
    if answer.code != 0:
        yield Failure("packing", "", f"exit {answer.code}: {answer.stderr[:200]}")
    elif reports.recording(reports.parsed(answer.stdout)) != reports.recording(sound.document):
        yield Failure("packing", "", "other numbers than the same recording plain")


def of_counts(answer: Answer, case: Case, kept: dict[str, int], sound: Sound) -> Iterator[Failure]:
    """Events lost beyond those that were damaged, and events lost without a word."""
    if answer.code != 0:
        return  # it said so
    document = reports.parsed(answer.stdout)
    before_it = sound.document or {"reports": []}
    words = "\n".join(reports.notes(document) - reports.notes(before_it))
    is_missed = reports.missing(document) > reports.missing(before_it)
    for path, before in sound.kept.items():
        entry, origin = case.tree.get(path), case.sound[path]
        if not isinstance(entry, bytes | Vanishing) or not isinstance(origin, bytes) or entry == origin:
            continue
        after, name = kept.get(path, 0), path.rsplit("/", 1)[-1]
        if case.target not in ("run", path) or after >= before:
            continue
        damage = None
        is_wide = "other_encoding" in case.mutation and isinstance(entry, bytes) and b"\0" in unpacked(entry)[:8]
        if isinstance(entry, bytes) and not is_wide and (unpacked(origin) is origin) == (unpacked(entry) is entry):
            damage = touched(unpacked(origin), unpacked(entry))  # the text was changed, and not how it is packed
        is_said = name in words or (is_missed and not after)
        yield from _of_loss(before, after, is_said, damage, f"{path}: {before} -> {after} events")


def _of_loss(before: int, after: int, is_said: bool, damage: Touched | None, text: str) -> Iterator[Failure]:
    lost = before - after
    if damage is None:
        if not is_said:
            yield Failure("silent drop", "", f"{text}; no note names the file")
        return
    beyond = lost - damage.touched
    if not is_said and not (damage.is_whole and beyond <= 0):
        yield Failure("silent drop", "", f"{text}, {damage.touched} touched; no note names the file")
    elif beyond > SLACK_EVENTS + before // 100:
        where = "the header" if damage.is_header else f"{damage.touched} events"
        yield Failure("greedy drop", "", f"{text}; only {where} were touched")
