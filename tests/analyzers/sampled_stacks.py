"""Samples of a script's stacks over the whole run, as capture counts them."""

from collections.abc import Sequence
from dataclasses import replace

from ddprof.analyzers.facts.model import RankFacts
from ddprof.model import SCRIPT_FRAMES, SCRIPT_STACKS, SCRIPT_TOTALS
from ddprof.tables import NULL, Table


def with_stacks(facts: RankFacts, *frames: tuple[str, int, str, int | None]) -> RankFacts:
    """The rank with a stack for each frame of (file, line, function, stack of the caller); libraries lie in folders."""
    file, line, function, caller = zip(*frames, strict=True)
    named = {"file": file, "line": line, "function": function, "is_user": ["/" not in name for name in file]}
    named["is_generator"] = [False] * len(file)
    stacks = {"frame": list(range(len(frames))), "outer": [NULL if at is None else at for at in caller]}
    return replace(facts, script_frames=SCRIPT_FRAMES.table(named), script_stacks=SCRIPT_STACKS.table(stacks))


def totals(*rows: tuple[str, int, int], thread: str = "", time_ns: Sequence[int] = ()) -> Table:
    """A table of (phase, stack, samples)."""
    phase, stack, samples = zip(*rows, strict=True)
    counted = {"thread": [thread] * len(rows), "phase": phase, "stack": stack, "samples": samples, "steps": samples}
    return SCRIPT_TOTALS.table({**counted, "time_ns": time_ns or samples, "late_ns": [0] * len(rows)})
