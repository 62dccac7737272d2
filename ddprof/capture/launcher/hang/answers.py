"""Stacks that ranks report on request, and whether any rank moved between two reports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddprof.capture.files.last_resort import answer_signal, handles
from ddprof.capture.files.layout import ANSWER_SUFFIX, FAULT_SUFFIX, RING_SUFFIX, parse_stem
from ddprof.capture.files.storage import names_in, read_object
from ddprof.capture.launcher.live import pid_here, runs_here

_BUSY_SHARE = 0.5  # of the time between two answers: a thread that computes has all of it, one that polls a hundredth


@dataclass(frozen=True)
class Answer:
    """Report of one rank: its stack, its last call, its steps; `cpu_ns` used so far."""

    at_ns: int
    cpu_ns: int
    place: tuple[Any, ...]


def answers(folder: Path, request: int) -> dict[str, Answer]:
    """The answers to a request, by the name of the rank's files."""
    by_name = {}
    for path in names_in(folder, ANSWER_SUFFIX):
        try:
            content = read_object(path)
        except (OSError, ValueError):
            continue
        at_ns, cpu_ns = content.get("at_ns"), content.get("cpu_ns")
        if content.get("request") == request and isinstance(at_ns, int) and isinstance(cpu_ns, int):
            by_name[path.name.removesuffix(ANSWER_SUFFIX)] = Answer(at_ns, cpu_ns, _place(content))
    return by_name


def expected(folder: Path) -> set[str]:
    """The ranks that run and can answer; on other hosts, all that have not ended normally."""
    names = {path.name.removesuffix(RING_SUFFIX) for path in names_in(folder, RING_SUFFIX)}
    return {name for name in names if _may_run(name)}


def local_processes(given: Mapping[str, Answer]) -> list[int]:
    """The process ids of this host's ranks that have just answered."""
    return [pid for name in given if (pid := pid_here(f"{name}."))]


def ask_by_signal(folder: Path, names: Iterable[str]) -> list[str]:
    """Make ranks of this host that do not answer write their threads' stacks, by a signal, which works even where C
    code holds the interpreter. Returns the ranks asked; those without the signal's handler are left alone.
    """
    number, asked = answer_signal(), []
    for name in names:
        pid = pid_here(f"{name}.")
        if number is not None and pid and (folder / f"{name}{FAULT_SUFFIX}").exists() and handles(pid, number):
            with suppress(OSError):
                os.kill(pid, number)
                asked.append(name)
    return asked


def has_moved(before: Mapping[str, Answer], now: Mapping[str, Answer]) -> bool:
    """True where any rank has another line, call or step than before, or is gone."""
    return before.keys() != now.keys() or any(before[name].place != now[name].place for name in now)


def is_busy(before: Mapping[str, Answer], now: Mapping[str, Answer]) -> bool:
    """True where a rank used a CPU in between: one long operation is not a hang."""
    pairs = [(before[name], now[name]) for name in now if name in before]
    return any(b.cpu_ns - a.cpu_ns > _BUSY_SHARE * max(b.at_ns - a.at_ns, 1) for a, b in pairs)


def _place(content: Mapping[str, Any]) -> tuple[Any, ...]:
    frames = content.get("frames")
    stack = [(f.get("file"), f.get("line")) for f in frames if isinstance(f, dict)] if isinstance(frames, list) else []
    calls = content.get("calls")
    last = calls[-1].get("entered_ns") if isinstance(calls, list) and calls and isinstance(calls[-1], dict) else None
    return (content.get("steps_total"), last, *stack)


def _may_run(stem: str) -> bool:
    pid = pid_here(f"{stem}.")
    return parse_stem(f"{stem}.") is not None and (pid is None or runs_here(pid))
