"""Kernels: which kernels does the device run, for how long, and from where in the model and in the script?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from ddprof.analyzers.kernel_table.model import INSIDE, KernelTable, Merged, inclusive_us, merged
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, Named, Nested, Sheet, following
from ddprof.dashboard.figures.charts import Flame, FlameFrame, Ranges
from ddprof.dashboard.runs.view import View
from ddprof.errors import DdprofError
from ddprof.units import bare_name, format_apart, format_count, format_share, format_us

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
    levels = [level for level in ("module", "operator") if any(frame.level == level for frame in tree)]
    what = " → ".join([*levels, "operator inside" if table.runs_operators else "kernel"])
    reading = f"Each part ({what}) is as wide as its busy time; in all {format_us(whole.busy_us)} per step."
    if "module" in levels:
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
    return Exhibit("flame", "From where in the model is it called?", reading, Sheet(columns, rows), Flame(tree))


def frames(rows: Sequence[Merged]) -> list[FlameFrame]:
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
) -> list[FlameFrame]:
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


def _frame(step: _Step, rows: Sequence[Merged], depth: int, start_us: float) -> FlameFrame:
    by_kind: dict[str, float] = {}
    for row in rows:
        by_kind[row.key[3]] = by_kind.get(row.key[3], 0.0) + row.busy_us
    return FlameFrame(
        depth,
        *step,
        kind=max(by_kind, key=lambda kind: by_kind[kind]),
        start_us=start_us,
        busy_us=sum(row.busy_us for row in rows),
        total_us=sum(row.total_us for row in rows),
        calls=sum(row.calls for row in rows),
        step_share=sum(row.step_share for row in rows),
    )


DRAWN, LABEL_CHARS = 12, 22  # bars of the picture
JOB = "torchrun train.py"  # stands for the command of the job, which a trace does not hold
NAMED_BY_TRACES = ("kernels", "operators", "modules", "lines", "compare-kernels", "flame")  # they name events
_ONCE = "Busy time counts each moment once and sums to the ledger; total time counts every call in full."
_SPECIAL, _ESCAPED = re.compile(r"([.^$*+?()\[\]{}|\\])"), r"\\\1"
WARM_UP_STEPS = 10  # passed over by Nsight Compute: the first ones choose algorithms and load code


def exhibits(view: View) -> Iterator[Exhibit]:
    """The tables of the page."""
    try:
        table = view.opened.kernels
    except DdprofError as error:
        yield Exhibit("kernels", "What takes the device's time?", str(error), Sheet((), ()))
        return
    for exhibit in (_kernels(view, table), flame(view, table), *_grouped(view, table)):
        if exhibit is not None:
            yield following(exhibit, "ranks")


def _kernels(view: View, table: KernelTable) -> Exhibit:
    question = (
        "Which operators take the ranks' time?" if table.runs_operators else "Which kernels take the device's time?"
    )
    rows = merged(table, ("kernel", "operator", "kind"), view.shows)
    if not rows:
        return Exhibit("kernels", question, "Nothing that ran in the steps was recorded.", Sheet((), ()))
    first = ("operator", "called by", "kind") if table.runs_operators else ("kernel", "operator", "kind")
    names = [(Named(r.key[0] or "no operator"), Named(r.key[1]) if r.key[1] else None, r.key[2]) for r in rows]
    drawn = merged(table, ("kernel",), view.shows)[:DRAWN] if table.runs_operators else rows[:DRAWN]
    chart = Ranges(
        _labels([(r.key[0], "" if table.runs_operators else r.key[1]) for r in drawn]),
        [r.lowest_us / 1e3 for r in drawn],
        [r.busy_us / 1e3 for r in drawn],
        [r.highest_us / 1e3 for r in drawn],
        "ms/step",
        "fastest to slowest rank" if len(view.opened.job.ranks) > 1 else "",
    )
    commands: tuple[str, ...] = ()
    if view.opened.report.run.device == "cuda":  # what Nsight Compute supports
        commands = tuple(
            ncu_command(row.key[0], row.calls, JOB) if row.key[2] == "compute" and row.calls else "" for row in rows
        )
    reading = " ".join(part for part in (_head(view, table, rows), _ONCE, _not_recorded(table, rows)) if part)
    return Exhibit("kernels", question, reading, _sheet(first, names, rows, commands), chart)


def _labels(bars: Sequence[tuple[str, str]]) -> list[str]:
    """Names of the bars, with the operator for elementwise kernels, whose names are alike."""
    named = [(bare_name(kernel or "no operator"), operator.removeprefix("aten::")) for kernel, operator in bars]
    return format_apart([f"{operator}: {kernel}" if operator else kernel for kernel, operator in named], LABEL_CHARS)


def _head(view: View, table: KernelTable, rows: Sequence[Merged]) -> str:
    busy_us, top_us = sum(r.busy_us for r in rows), sum(r.busy_us for r in rows[:DRAWN])
    share = format_share(sum(r.step_share for r in rows))
    what = "operators and collectives" if table.runs_operators else "kernels, collectives and copies"
    first = f", the first {DRAWN} for {format_share(top_us / busy_us)} of that" if len(rows) > DRAWN and busy_us else ""
    reading = f"{len(rows)} {what} keep a rank busy for {format_us(busy_us)} of its step ({share}){first}."
    of_cpus = "The ranks run on CPUs: an operator's time is its self CPU time, without the operators that it calls."
    return f"{reading} {of_cpus}" if table.runs_operators else reading


def _not_recorded(table: KernelTable, rows: Sequence[Merged]) -> str:
    words = []
    if not table.runs_operators and all(r.flops_per_s is None for r in rows):
        words.append("FLOPs: not recorded (record_shapes=True states shapes; ddprof run asks for it).")
    elif not table.runs_operators:
        words.append("FLOPs and bytes: of matrix products and attention.")
    wrong = sum((r.roofline_share or 0.0) > 1 for r in rows)
    if wrong:
        beat = f"{format_count(wrong, 'kernel')} would beat the device's roofline"
        words.append(f"{beat}: shapes or times are recorded wrong.")
    if not table.runs_operators and not any(r.key[1] for r in rows):
        words.append("Operators: not recorded for these kernels.")
    return " ".join(words)


def _grouped(view: View, table: KernelTable) -> Iterator[Exhibit]:
    """Busy time by operator, by module and by line, each with the share that is known."""
    around = "the outermost" if table.runs_operators else "the innermost that launches it"
    for part, question, missing, clause in (
        (
            "operator",
            "Which operators call them?",
            "no operator is linked to a kernel (torch.profiler links them with ProfilerActivity.CPU).",
            f"lies in an operator; the table names {around}.",
        ),
        (
            "module",
            "Which modules of the model?",
            "torch.profiler's with_stack=True records the calls of nn.Module.",
            "was called inside a module. The profiler records modules of the forward pass: what autograd launches has "
            "none.",
        ),
        (
            "line",
            "Which lines of the script?",
            "torch.profiler's with_stack=True states lines; ddprof run samples them.",
            "belongs to a line of the script: the innermost that calls it, or that waits for the backward pass.",
        ),
    ):
        rows = merged(table, (part,), view.shows)
        named_us = sum(r.busy_us for r in rows if r.key[0])
        if not any(r.key[0] for r in rows):
            yield Exhibit(f"{part}s", question, f"Not recorded: {missing}", Sheet((), ()))
            continue
        reading = f"{format_share(named_us / max(sum(r.busy_us for r in rows), 1e-9))} of the busy time {clause}"
        kind = Named if part == "operator" else Nested
        names = [(kind(r.key[0] or "not recorded"),) for r in rows]
        table_of = _module_sheet(rows) if part == "module" else _sheet((part,), names, rows)
        yield Exhibit(f"{part}s", question, reading, table_of)


def _module_sheet(rows: Sequence[Merged]) -> Sheet:
    """Modules with their own time and the time of all modules inside, so that a layer is one row."""
    inside = inclusive_us(rows)
    own = {r.key[0]: (r.busy_us / 1e3, r.calls, 100 * r.step_share) for r in rows}
    paths = sorted(inside, key=lambda path: (-inside[path], path))
    columns = ("module", "with its modules (ms/step)", "its own (ms/step)", "calls/step", "% of the step")
    nothing = (0.0, 0.0, 0.0)
    lines = tuple((Nested(path or "not recorded"), inside[path] / 1e3, *own.get(path, nothing)) for path in paths)
    return Sheet(columns, lines, True, len(columns) - 1)


def _sheet(
    titles: Sequence[str], names: Sequence[tuple[object, ...]], rows: Sequence[Merged], commands: tuple[str, ...] = ()
) -> Sheet:
    """A table of merged rows, without columns that are unknown throughout, and without the spread of a single rank."""
    several = any(r.ranks > 1 for r in rows)
    columns: dict[str, list[object]] = {
        "calls/step": [r.calls for r in rows],
        "busy (ms/step)": [r.busy_us / 1e3 for r in rows],
        "% of the step": [100 * r.step_share for r in rows],
        "% of the critical path": [None if r.path_share is None else 100 * r.path_share for r in rows],
        "total (ms/step)": [r.total_us / 1e3 for r in rows],
        "fastest rank (ms)": [r.lowest_us / 1e3 if several else None for r in rows],
        "slowest rank (ms)": [r.highest_us / 1e3 if several else None for r in rows],
        "slowest rank": [r.slowest if several else None for r in rows],
        "TFLOP/s": [None if r.flops_per_s is None else r.flops_per_s / 1e12 for r in rows],
        "GB/s at least": [None if r.bytes_per_s is None else r.bytes_per_s / 1e9 for r in rows],
        "% of the roofline": [100 * s if (s := r.roofline_share) is not None and s <= 1 else None for r in rows],
    }
    shown = {title: values for title, values in columns.items() if any(value is not None for value in values)}
    lines = tuple((*name, *values) for name, values in zip(names, zip(*shown.values(), strict=True), strict=True))
    weight = len(titles) + list(shown).index("% of the step")
    return Sheet((*titles, *shown), lines, True, weight, commands)


def ncu_command(kernel: str, calls_per_step: float, job: str) -> str:
    """The command of NVIDIA Nsight Compute that profiles a kernel in the step after the first WARM_UP_STEPS. `job`: how
    the job is started.

    Options as in the Nsight Compute CLI documentation: of the launches that match the name, `--launch-skip` are passed
    over and `--launch-count` profiled, counted for each device (`--filter-mode per-gpu`). A kernel is run several times
    over, which one that waits for other ranks cannot: collectives have no command.
    """
    launches = max(1, round(calls_per_step))
    words = [
        "ncu",
        *("--target-processes", "all", "--filter-mode", "per-gpu", "--kernel-name-base", "demangled"),
        *("--kernel-name", f"regex:^{_SPECIAL.sub(_ESCAPED, kernel)}$"),
        *("--launch-skip", str(round(calls_per_step * WARM_UP_STEPS)), "--launch-count", str(launches)),
        *("--set", "full", "-o", "kernel"),
    ]
    return f"{shlex.join(words)} {job}"
