"""The sidecar: everything about a rank that its trace lacks (docs/run-folder.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ddprof.capture.describe import environment, nccl_log
from ddprof.capture.describe.stacks import source_line
from ddprof.capture.files.layout import SCHEMA
from ddprof.capture.files.storage import is_full, write_json
from ddprof.capture.hub import Hub
from ddprof.capture.identity import RankIdentity
from ddprof.capture.instruments.base import Instrumentor
from ddprof.capture.stacks.sampler import StackSampler
from ddprof.capture.steps.own_cost import OwnCost
from ddprof.capture.steps.tracker import step_medians

_MAX_SYNC_LINES = 256
FETCH_FIELDS = ("start_ns", "dur_ns", "cpu_ns", "collate_ns", "samples")


class Sources(Hub, Protocol):
    """The parts of the session that the sidecar records."""

    ending: dict[str, Any] | None
    identity: RankIdentity | None
    instrumentors: Sequence[Instrumentor]
    own_cost: OwnCost
    stacks: StackSampler

    def give_up_file(self) -> bool:
        """Delete a file of the running job; False where there is none left."""


def write(path: Path, session: Sources, state: str) -> None:
    """Write the sidecar of `session`, whole or not at all. `state`: "running", "exit", "signal", "watchdog". Raises
    OSError.

    On a full disk the last sidecar takes the place of the files whose content it holds."""
    content = build(session, state)
    while True:
        try:
            return write_json(path, content)
        except OSError as error:
            if not (is_full(error) and state != "running" and session.give_up_file()):
                raise


def build(session: Sources, state: str) -> dict[str, Any]:
    """The sidecar's content. What is missing is null."""
    identity, journal, guard = session.identity, session.journal, session.guard
    if identity is None:
        raise RuntimeError("a sidecar needs a rank")
    steps = session.tracker.logged()
    stacks = session.stacks.described()
    calls = [] if session.calls is None else session.calls.recent()
    return {
        "schema": SCHEMA,
        "state": state,
        **dataclasses.asdict(identity),
        **session.observed.surroundings(),
        **session.observed.describe(),
        "processors": environment.processors(),
        "communication_environment": environment.communication_environment(),
        "nccl": guard.attempt("NCCL's log", lambda: nccl_log.read(journal.nccl_log)),
        "steps_total": session.tracker.booked,
        "steps": [step.record() for step, _ in steps],
        "windows": list(journal.windows),
        "gc": list(journal.gc),
        "checkpoints": list(journal.checkpoints),
        "evaluations": list(journal.evaluations),
        "syncs": _syncs(journal.syncs),
        "batch": journal.batch,
        "batches": journal.batches(),
        "fetches": [dict(zip(FETCH_FIELDS, fetch, strict=True)) for fetch in list(journal.fetches)],
        **{key: value for instrumentor in session.instrumentors for key, value in instrumentor.recorded().items()},
        "gradient_ready": journal.gradient_ready,
        "allocator": guard.attempt("allocator", environment.allocator),
        "end": session.ending,
        "calls": calls if _is_abnormal(state, session.ending) else [],
        "window_calls": list(journal.window_calls),
        "last_calls": journal.calling_lines(calls, [step.start_ns for step, _ in steps]),
        "skipped_optimizer_steps": journal.skipped_optimizer_steps,
        "stacks": stacks,
        "overhead": {
            **step_medians(steps),
            "own_ns_per_step": session.own_cost.per_step_ns(),
            "stacks_frac": stacks["frac"] if stacks else None,
            "stacks_window_frac": stacks["window_frac"] if stacks else None,
        },
        "notes": [*journal.notes, *guard.faults],
    }


def _is_abnormal(state: str, end: dict[str, Any] | None) -> bool:
    """True where the rank failed or was stopped, so that its last calls matter."""
    return state not in ("exit", "running", "stopped") or bool(end and end["error"])


def _syncs(syncs: dict[tuple[str, str], list[int]]) -> list[dict[str, Any]]:
    """Lines that waited for the device, longest wait first, with their text where the file is still readable."""
    worst = sorted(syncs.items(), key=lambda item: -item[1][1])[:_MAX_SYNC_LINES]
    return [
        {"source_line": line, "what": what, "count": count, "total_ns": total, "source": _source(line)}
        for (line, what), (count, total) in worst
    ]


def _source(line: str) -> str | None:
    file, _, number = line.rpartition(":")
    return (source_line(file, int(number)) if number.isdigit() else "") or None
