"""The flame graph: which module calls which operator, and that which kernel, each as wide as its busy time."""

from __future__ import annotations

from ddprof.analyzers.kernel_table.flame import BY, TreeFrame, frames
from ddprof.analyzers.kernel_table.merged import merged
from ddprof.analyzers.kernel_table.model import KernelTable
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, Sheet, short_name
from ddprof.dashboard.figures.charts import Flame, FlameFrame
from ddprof.dashboard.runs.view import View
from ddprof.units import format_share, format_us

_TABLES = {"module": "modules", "operator": "kernels", "kernel": "kernels"}  # which table lists frames of a level
_COLORS = {"compute": "compute", "communication": "comm-transfer", "copy": "memcpy"}


def flame(view: View, table: KernelTable) -> Exhibit | None:
    """The exhibit; None where nothing ran."""
    found = frames(merged(table, BY, view.shows))
    if not found:
        return None
    whole = found[0]
    has_modules = any(frame.level == "module" for frame in found)
    levels = [level for level in ("module", "operator") if any(frame.level == level for frame in found)]
    what = " → ".join([*levels, "operator inside" if table.runs_operators else "kernel"])
    reading = f"{what[0].upper()}{what[1:]}, as wide as the busy time: {format_us(whole.busy_us)} per step in all."
    if has_modules:
        known = sum(f.busy_us for f in found if f.depth == 1 and f.name)
        reading += f" {format_share(known / whole.busy_us if whole.busy_us else 0.0)} of it lies in a module."
    else:
        reading += " Modules: not recorded (torch.profiler's with_stack=True records them)."
    reading += " A click on a part filters the table that lists it."
    columns = ("level", "name", "busy (ms/step)", "% of the step", "calls/step", "total (ms/step)")
    rows = tuple(
        (f.level, Named(f.name) if f.name else f.words, f.busy_us / 1e3, 100 * f.step_share, f.calls, f.total_us / 1e3)
        for f in found
    )
    chart = Flame([_drawn(frame) for frame in found], "ms/step")
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
