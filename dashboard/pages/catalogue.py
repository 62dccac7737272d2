"""All pages in the order of the navigation, those of slices last: their subjects, and how they are laid out."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping

from dash.development.base_component import Component

from ddprof.dashboard.exhibits.catalogue import SUBJECTS
from ddprof.dashboard.pages import compare, data, findings, overview, timeline, tuning, what_if
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.view import View
from ddprof.errors import UsageError
from ddprof.slice import all_slices

_LAYOUTS: Mapping[str, Callable[[View], list[Component]]] = {
    "/": overview.content,
    "/findings": findings.content,
    "/timeline": timeline.content,
    "/what-if": what_if.content,
    "/tuning": tuning.content,
    "/compare": compare.content,
    "/data": data.content,
}
PAGES: tuple[Page, ...] = (
    *(Page(subject, _LAYOUTS.get(subject.path)) for subject in SUBJECTS),
    *(importlib.import_module(module).PAGE for part in all_slices() for module in part.pages),
)
_BY_PATH = {page.path: page for page in PAGES}


def page_at(path: str) -> Page:
    """The page of an address. Raises UsageError where there is none."""
    found = _BY_PATH.get(path.rstrip("/") or "/")
    if found is None:
        raise UsageError(f"there is no page {path}")
    return found
