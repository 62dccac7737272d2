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
    kernels,
    memory,
    overview,
    pipeline,
    ranks,
    tuning,
    what_if,
)
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit
from ddprof.dashboard.runs.view import View


@dataclass(frozen=True)
class Subject:
    """Subject of a page. `needs_traces`: a saved report cannot show it; `has_data`: whether a traced run has any."""

    path: str
    title: str
    exhibits: Callable[[View], Iterable[Exhibit]]
    needs_traces: bool = False
    has_data: Callable[[View], bool] = lambda view: True

    def is_empty(self, view: View) -> bool:
        """True where nothing of the page's subject was recorded."""
        return (self.needs_traces and not view.opened.has_traces) or not self.has_data(view)

    @property
    def anchor(self) -> str:
        """The page's name in the address of the HTML file."""
        return self.path.strip("/") or "overview"


SUBJECTS = (
    Subject("/", "Overview", overview.exhibits),
    Subject("/findings", "Findings", findings.exhibits),
    Subject("/timeline", "Timeline", lambda view: (), True),  # the canvas itself shows the numbers of its selection
    Subject("/ranks", "Ranks & steps", ranks.exhibits),
    Subject("/communication", "Communication", communication.exhibits, True, communication.has_data),
    Subject("/host", "Input & host", host.exhibits, needs_traces=True),
    Subject("/kernels", "Kernels", kernels.exhibits, needs_traces=True),
    Subject("/memory", "Memory", memory.exhibits, True, memory.has_data),
    Subject("/pipeline", "Pipeline", pipeline.exhibits, True, pipeline.has_data),
    Subject("/what-if", "What-if", what_if.exhibits),
    Subject("/tuning", "Tuning", tuning.exhibits, has_data=tuning.has_data),
    Subject("/compare", "Compare", compare.exhibits, has_data=compare.has_data),
    Subject("/data", "Data", data.exhibits),
)
