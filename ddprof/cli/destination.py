"""Report destinations beside files, selected with `--to` and `--log-to`; slices provide them."""

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
    """Destination of reports. `sender(option, names)` returns the function that sends to `names` and raises UsageError
    for an unknown one; `follower` is the module that runs beside a job, with its folder and the names, until stdin
    closes.
    """

    sender: Callable[[str, Sequence[str]], Send]
    follower: str


def destination() -> Destination:
    """The destination of the first slice that has one."""
    first: Destination = next(
        import_lasting(module).DESTINATION for part in all_slices() for module in part.destinations
    )
    return first
