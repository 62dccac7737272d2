"""The flame graph: modules, the operators that they call, and the kernels of those, each as wide as its busy time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ddprof.analyzers.kernel_table.merged import Merged, merged
from ddprof.analyzers.kernel_table.model import INSIDE, KernelTable
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, Sheet, short_name
from ddprof.dashboard.figures.charts import Flame, FlameFrame
from ddprof.dashboard.runs.view import View
from ddprof.units import format_share, format_us

_TABLES = {"module": "modules", "operator": "kernels", "kernel": "kernels"}  # which table lists frames of a level
_COLORS = {"compute": "compute", "communication": "comm-transfer", "copy": "memcpy"}
BY = ("module", "operator", "kernel", "kind")  # of the merged rows that `frames` takes
LEAST_SHARE = 0.002  # of all busy time: two pixels of a wide picture; narrower siblings become one frame
_UNKNOWN = {"module": "no module", "operator": "no operator"}
_Step = tuple[str, str, str]  # level, name, words


def flame(view: View, table: KernelTable) -> Exhibit | None:
    """The exhibit; None where nothing ran."""
    tree = frames(merged(table, BY, view.shows))
    if not tree:
        return None
    whole = tree[0]
    has_modules = any(frame.level == "module" for frame in tree)
    levels = [level for level in ("module", "operator") if any(frame.level == level for frame in tree)]
    what = " → ".join([*levels, "operator inside" if table.runs_operators else "kernel"])
    reading = f"Each part ({what}) is as wide as its busy time; in all {format_us(whole.busy_us)} per step."
    if has_modules:
        in_module_us = sum(f.busy_us for f in tree if f.depth == 1 and f.name)
        reading += f" {format_share(in_module_us / whole.busy_us if whole.busy_us else 0.0)} of it lies in a module."
    else:
        reading += " Modules: not recorded (torch.profiler's with_stack=True records them)."
    reading += " A click on a part filters the table that lists it."
    columns = ("level", "name", "busy (ms/step)", "% of the step", "calls/step", "total (ms/step)")
    rows = tuple(
        (f.level, Named(f.name) if f.name else f.words, f.busy_us / 1e3, 100 * f.step_share, f.calls, f.total_us / 1e3)
        for f in tree
    )
    chart = Flame([_drawn(frame) for frame in tree], "ms/step")
    return Exhibit("flame", "From where in the model is it called?", reading, Sheet(columns, rows), chart)


def _drawn(frame: TreeFrame) -> FlameFrame:
    return FlameFrame(
        line=frame.depth,
        start=frame.start_us / 1e3,
        length=frame.busy_us / 1e3,
        total=frame.total_us / 1e3,
        calls=frame.calls,
        step_share=frame.step_share,
        name=short_name(frame.words) if frame.level == "kernel" and frame.name else frame.words,
        is_named=bool(frame.name),
        color=_COLORS[frame.kind] if frame.level in ("kernel", "operator") else "line",
        is_pale=frame.level == "operator",
        table=_TABLES.get(frame.level, "") if frame.name else "",
        row=frame.name,
    )


@dataclass(frozen=True)
class TreeFrame:
    """A rectangle: `depth` 0 is all busy time; `start_us` from its left end. Times and calls: per step, over all ranks.

    `level`: "all", "module", "operator", "kernel" or "more" (several, too narrow to be drawn). `name`: as in the trace,
    of a module its whole path; "" where it was not recorded. `kind`: of most of its time.
    """

    depth: int
    level: str
    name: str
    words: str
    kind: str
    start_us: float
    busy_us: float
    total_us: float
    calls: float
    step_share: float


def frames(rows: Sequence[Merged]) -> list[TreeFrame]:
    """The tree from left to right, parents first, the widest child first. A level that no row has is left out.

    `rows`: merged by BY. The busy time of a frame is the sum of the frames below it; that of the first is all there is.
    """
    if not rows:
        return []
    has_modules, has_operators = (any(row.key[at] for row in rows) for at in (0, 1))
    placed = [(_path(row, has_modules, has_operators), row) for row in rows]
    least_us = LEAST_SHARE * sum(row.busy_us for row in rows)
    return _below(("all", "", "all kernels"), placed, 0, 0.0, least_us)


def _path(row: Merged, has_modules: bool, has_operators: bool) -> list[_Step]:
    """Names from the outermost module to the kernel."""
    module, operator, kernel, kind = row.key
    steps: list[_Step] = []
    if has_modules:
        parts = module.split(INSIDE) if module else []
        steps += [("module", INSIDE.join(parts[: i + 1]), part) for i, part in enumerate(parts)]
        steps += [] if parts else [("module", "", _UNKNOWN["module"])]
    if has_operators:
        steps.append(("operator", operator, operator or _UNKNOWN["operator"]))
    return [*steps, ("kernel", kernel, kernel or kind)]


def _below(
    step: _Step, placed: list[tuple[list[_Step], Merged]], depth: int, start_us: float, least_us: float
) -> list[TreeFrame]:
    """The frame of a step, and all below it; `placed`: the remaining path of each row."""
    tree = [_frame(step, [row for _, row in placed], depth, start_us)]
    groups: dict[_Step, list[tuple[list[_Step], Merged]]] = {}
    for path, row in placed:
        if path:
            groups.setdefault(path[0], []).append((path[1:], row))
    wide = {child: sum(row.busy_us for _, row in of) for child, of in groups.items()}
    drawn = sorted((c for c in groups if wide[c] >= least_us), key=lambda child: (-wide[child], child))
    for child in drawn:
        tree += _below(child, groups[child], depth + 1, start_us, least_us)
        start_us += wide[child]
    rest = [row for child in groups if child not in drawn for _, row in groups[child]]
    if rest and (count := len(groups) - len(drawn)):
        tree.append(_frame(("more", "", f"{count} more"), rest, depth + 1, start_us))
    return tree


def _frame(step: _Step, rows: Sequence[Merged], depth: int, start_us: float) -> TreeFrame:
    by_kind: dict[str, float] = {}
    for row in rows:
        by_kind[row.key[3]] = by_kind.get(row.key[3], 0.0) + row.busy_us
    return TreeFrame(
        depth,
        *step,
        kind=max(by_kind, key=lambda kind: by_kind[kind]),
        start_us=start_us,
        busy_us=sum(row.busy_us for row in rows),
        total_us=sum(row.total_us for row in rows),
        calls=sum(row.calls for row in rows),
        step_share=sum(row.step_share for row in rows),
    )
