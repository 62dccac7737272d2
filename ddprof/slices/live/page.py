"""Live: a running job."""

from __future__ import annotations

from dash.development.base_component import Component

from ddprof.dashboard.exhibits.catalogue import Subject
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.view import View
from ddprof.slices.live.exhibits import exhibits, has_data


def _now(view: View) -> list[Component]:
    if not has_data(view):
        words = "This job is not running. While a job runs, serve its folder: ddprof serve ddprof-runs/latest."
        return [notice(words)]
    return [exhibit_card(e, "/live", view) for e in exhibits(view)]


PAGE = Page(Subject("/live", "Live", exhibits, has_data=has_data), now=_now)
