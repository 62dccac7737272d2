"""Capabilities beside the core, each one folder of `ddprof/slices`, found by name and loaded on demand.

A folder holds all of its capability, from model to command. The core imports no slice, and slices import none of each
other. Third parties add one by an entry point in the group `ddprof.slices` that resolves to a `Slice`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from ddprof.untrusted.registered import registered

ENTRY_POINTS = "ddprof.slices"
# In the order of `ddprof --help`, and of the navigation.
OWN = (
    *("planning", "tuning", "comparison", "live", "hangs", "memory", "doctor"),
    *("assistants", "trackers", "training_logs", "span_logs", "xla"),
)


class Command(NamedTuple):
    """A command of `ddprof`: its module, help line, group in `ddprof --help`, the command that it follows there (last
    without one), and its name in the module.
    """

    module: str
    line: str
    group: str
    after: str = ""
    name: str = "command"


@dataclass(frozen=True)
class Slice:
    """One capability's additions to the core, as module names: nothing is imported yet.

    `commands`: by name. `formats`: modules that end in `FORMAT`. `answers`: modules that end in `ANSWER`, what
    `ddprof analyze` says of input that is no run. `failures`: modules that end in `FAILURE`, why a job failed or hangs.
    `pages`: modules that end in `PAGE`, of the dashboard. `destinations`: modules that end in `DESTINATION`, where
    reports are sent by `--to` and `--log-to`.
    """

    name: str
    commands: Mapping[str, Command] = field(default_factory=dict)
    formats: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    pages: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()


@cache
def own_slices() -> tuple[Slice, ...]:
    """The slices of this package."""
    return tuple(importlib.import_module(f"ddprof.slices.{name}").SLICE for name in OWN)


@cache
def all_slices() -> tuple[Slice, ...]:
    """The slices of this package, then those that other packages register."""
    return (*own_slices(), *registered(ENTRY_POINTS))
