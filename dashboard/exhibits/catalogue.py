"""The pages in the order of the navigation: address, title, exhibits. The dashboard and the HTML file show the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ddprof.dashboard.exhibits import (
    communication,
    compare,
    data,
    findings,
    host,
    live,
    memory,
    overview,
    pipeline,
    ranks,
    what_if,
)
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.runs.view import View


@dataclass(frozen=True)
class Subject:
    """What a page shows. `needs_traces`: a saved report cannot show it."""

    path: str
    title: str
    exhibits: Callable[[View], Iterable[Exhibit]]
    needs_traces: bool = False

    @property
    def anchor(self) -> str:
        """The page's name in the address of the HTML file."""
        return self.path.strip("/") or "overview"


def _none(view: View) -> list[Exhibit]:
    """The canvas itself shows the numbers of what is selected on it."""
    return []


SUBJECTS = (
    Subject("/", "Overview", overview.exhibits),
    Subject("/findings", "Findings", findings.exhibits),
    Subject("/timeline", "Timeline", _none, needs_traces=True),
    Subject("/ranks", "Ranks & steps", ranks.exhibits),
    Subject("/communication", "Communication", communication.exhibits, needs_traces=True),
    Subject("/host", "Input & host", host.exhibits, needs_traces=True),
    Subject("/memory", "Memory", memory.exhibits, needs_traces=True),
    Subject("/pipeline", "Pipeline", pipeline.exhibits, needs_traces=True),
    Subject("/what-if", "What-if", what_if.exhibits),
    Subject("/compare", "Compare", compare.exhibits),
    Subject("/data", "Data", data.exhibits),
)
# A file cannot show what is written at the moment: only the dashboard has this page.
LIVE = Subject("/live", "Live", live.exhibits)
