"""Places where reports go beside files, by the names that `--to` and `--log-to` take: slices provide it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddprof.cli.lasting import import_lasting
from ddprof.slice import all_slices

if TYPE_CHECKING:  # the launcher of a job asks too, and stays small
    from ddprof.report.model import Report

# Sends a report, the file that was written of it, and the path that it was read from (None: that stays here). Raises
# DdprofError where it was not taken.
Send = Callable[["Report", Path, str | None], None]


@dataclass(frozen=True)
class Destination:
    """`sender(option, names)`: what sends to these; raises UsageError where a name means none. `follower`: the module
    that is run beside a job, with its folder and the names, until stdin closes.
    """

    sender: Callable[[str, Sequence[str]], Send]
    follower: str


def destination() -> Destination:
    """That of the first slice that has one."""
    found: Destination = next(
        import_lasting(module).DESTINATION for part in all_slices() for module in part.destinations
    )
    return found
