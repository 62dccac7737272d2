"""What the filters of a view leave of the run: ranks by position and name, and steps."""

from __future__ import annotations

from collections.abc import Iterable

from ddprof.dashboard.exhibits.parts.numbers import step_count
from ddprof.dashboard.runs.view import View

MAX_STEPS_SHOWN = 200


def positions(view: View) -> list[int]:
    """Positions of the ranks that pass the filter."""
    return [p for p, rank in enumerate(view.opened.job.rank_ids) if view.shows(rank)]


def rank_names(view: View, of: Iterable[int]) -> list[str]:
    """Names of ranks by position: "rank 3"."""
    return [f"rank {view.opened.job.rank_ids[p]}" for p in of]


def steps(view: View) -> list[int]:
    """The first MAX_STEPS_SHOWN steps that pass the filter."""
    return [s for s in range(step_count(view.opened.job)) if view.shows_step(s)][:MAX_STEPS_SHOWN]
