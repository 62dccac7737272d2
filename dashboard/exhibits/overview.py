"""Overview: is it steady, and which rank differs?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Way, sheet
from ddprof.dashboard.exhibits.parts.step_dots import step_dots
from ddprof.dashboard.figures.charts import Heat
from ddprof.dashboard.runs.view import View
from ddprof.findings import CRITICAL_SHARE
from ddprof.report.deviation import Deviation, deviation
from ddprof.report.html.svg import NAMED_MARK

TIE_POINTS = 0.01  # of a percent point: less is the same distance


def exhibits(view: View) -> list[Exhibit]:
    """The two small pictures."""
    return [e for e in (step_dots(view), rank_causes(view)) if e is not None]


def rank_causes(view: View) -> Exhibit | None:
    """Ranks against causes in percent of each rank's step, coloured by the distance to the typical peer."""
    found = deviation(view.opened.report, shows=view.shows)
    if found is None:
        return None
    heads = [CAUSES[c].label for c in found.causes]
    names = [f"rank {r}" + (NAMED_MARK if r in found.named else "") for r in found.ranks]
    points = np.array(found.points)
    chart = Heat(np.array(found.percent), heads, names, "%", 100.0 * CRITICAL_SHARE, diverging=True, shade=points)
    rows = [(r, *_percent(row)) for r, row in sorted(view.opened.report.ledger.per_rank.items()) if view.shows(r)]
    table = sheet(("rank", *(f"{CAUSES[c].label} (%)" for c in CAUSES)), rows)
    ways = _ways(view, found)
    return Exhibit("rank-causes", "Which rank differs?", _difference(found, heads), table, chart, ("ranks",), ways=ways)


def _ways(view: View, found: Deviation) -> tuple[Way, ...]:
    """To the rank that is farthest off, and to who comes late."""
    if not view.opened.has_traces or found.of == 1:
        return ()
    line, _ = _farthest(found)
    rank = found.ranks[line]
    return (
        Way(f"Rank {rank} in the timeline", "/timeline", (("open", str(rank)),)),
        Way("Who comes late, and why", "/ranks"),
    )


def _farthest(found: Deviation) -> tuple[int, int]:
    """Line and column of the cell that differs most; of two ranks, which are equally far from one another, on the one
    that a finding names."""
    points = np.array(found.points)
    named = np.array([rank in found.named for rank in found.ranks])[:, None]
    line, column = np.unravel_index(int((np.abs(points) + TIE_POINTS * named).argmax()), points.shape)
    return int(line), int(column)


def _percent(row: Mapping[str, float]) -> list[float]:
    return [row.get(c, 0.0) / max(row.get("wall_us", 0.0), 1e-9) * 100 for c in CAUSES]


def _difference(found: Deviation, heads: list[str]) -> str:
    if found.of == 1:
        return "One rank was traced."
    points, percent = np.array(found.points), np.array(found.percent)
    line, column = _farthest(found)
    if abs(points[line, column]) < 1.0:
        return "All ranks spend their step alike, to one percent."
    typical = percent[line, column] - points[line, column]
    whose = "the other" if found.of == 2 else "the median rank"
    words = (
        f"Percent of the step. Farthest off: {heads[column]} on rank {found.ranks[line]}, "
        f"{percent[line, column]:.0f} % against {typical:.0f} % on {whose}."
    )
    if len(found.ranks) < found.of:
        words += f" Shown: the {len(found.ranks)} of {found.of} ranks that differ most."
    return words + (f"{NAMED_MARK} is named by a finding." if found.named & set(found.ranks) else "")
