"""Live: a job that still runs. Who is behind, how long steps take, how busy hosts and devices are, how full."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dash.development.base_component import Component

from ddprof.capture.launcher.live import LiveRank, latest_late, silent_ranks
from ddprof.causes import CAUSES
from ddprof.dashboard.exhibits.parts.exhibit import Exhibit, sheet
from ddprof.dashboard.exhibits.parts.numbers import MAX_LINES
from ddprof.dashboard.figures.charts import Curve, Curves, Part, Stacked
from ddprof.dashboard.pages.cards import exhibit_card, notice
from ddprof.dashboard.pages.page import Page
from ddprof.dashboard.runs.counters import COUNTERS, CounterSample, cores_busy, samples_in
from ddprof.dashboard.runs.open_run import running_ranks
from ddprof.dashboard.runs.view import View
from ddprof.report.phrases import clean
from ddprof.units import format_bytes, format_count, format_ranks, format_us

# Phases, and the ledger cause in whose colour each is drawn.
_PHASES = {"data": "dataloader", "forward": "compute", "backward": "checkpoint", "optimizer": "gc"}
TAIL_BYTES = 64_000  # of a counters file: some minutes of lines


def has_data(view: View) -> bool:
    """True where the run is read from a folder that a job writes to."""
    return bool(running_ranks(view.opened.folder))


def exhibits(view: View) -> Iterator[Exhibit]:
    """The charts of the page; none where no rank runs."""
    ranks = [r for r in running_ranks(view.opened.folder) if view.shows(r.rank)]
    if not ranks:
        return
    yield _now(ranks, view.opened.argument or view.opened.folder)
    yield _history(ranks)
    hosts = hosts_now(view.opened.folder)
    if hosts:
        yield _hosts(hosts)


def _now(ranks: Sequence[LiveRank], run: str) -> Exhibit:
    """Phases and the rest of each rank's step; `run`: the path to give to commands."""
    columns = ("rank", "host", "step", "step time (ms)", *(f"{phase} (ms)" for phase in _PHASES), "silent for (s)")
    rows = [
        (r.rank, clean(r.host), r.last_step, r.median_ns() / 1e6, *(_ms(r, p) for p in _PHASES), r.age_ns / 1e9)
        for r in ranks
    ]
    # Backward holds the waiting for peers: it says nothing of the rank itself.
    slowest = sorted(ranks, key=lambda r: -sum(_ms(r, p) for p in _PHASES if p != "backward"))[:MAX_LINES]
    names = [f"rank {r.rank}" for r in slowest]
    parts = [
        Part(phase, phase, CAUSES[cause].color_name, [_ms(r, phase) for r in slowest])
        for phase, cause in _PHASES.items()
    ]
    beside = [max(0.0, r.median_ns() / 1e6 - sum(_ms(r, p) for p in _PHASES)) for r in slowest]
    parts.append(Part("rest", "rest of the step", "line", beside))
    chart = Stacked(names, parts, "ms per step, median of recent steps")
    return Exhibit("live-now", "Who is behind now?", _who(ranks, run), sheet(columns, rows), chart)


def _ms(rank: LiveRank, phase: str) -> float:
    """Median of a phase in recent steps."""
    return rank.median_ns(f"{phase}_ns") / 1e6


def _who(ranks: Sequence[LiveRank], run: str) -> str:
    """Sentence on the ranks: one is stuck, one is late, or all are even."""
    words = f"{format_count(len(ranks), 'rank')} at step {max(r.last_step for r in ranks)}."
    if stuck := silent_ranks(ranks):
        return f"{words} No step for a while on {format_ranks(stuck)}: ddprof hang {clean(run)} says why."
    late = latest_late(ranks)
    if late is None:
        return f"{words} No rank is behind. Waiting for peers counts as backward."
    return f"{words} Rank {late.rank} is {format_us(late.late_ns / 1e3)} late per step, in {late.phase}."


def _history(ranks: Sequence[LiveRank]) -> Exhibit:
    """The slowest and the fastest rank of each recent step."""
    walls: dict[int, list[float]] = {}
    for rank in ranks:
        for step in rank.steps:
            walls.setdefault(step.number, []).append((step.end_ns - step.start_ns) / 1e6)
    rows = [(number, min(w), max(w)) for number, w in sorted(walls.items())]
    table, question = sheet(("step", "fastest rank (ms)", "slowest rank (ms)"), rows), "Do steps get slower?"
    if len(rows) < 2:
        return Exhibit("live-steps", question, "Too few steps yet.", table)
    numbers = [row[0] for row in rows]
    drawn = [
        Curve("slowest rank", numbers, [row[2] for row in rows]),
        Curve("fastest rank", numbers, [row[1] for row in rows], dotted=True),
    ]
    half = len(rows) // 2
    before, now = (sum(r[2] for r in part) / len(part) for part in (rows[:half], rows[half:]))
    reading = f"The last {len(rows)} steps: {now:.3g} ms in the newer half against {before:.3g} ms in the older."
    return Exhibit("live-steps", question, reading, table, Curves(drawn, "step", "ms"))


def _hosts(hosts: Sequence[HostNow]) -> Exhibit:
    columns = ("where", "busy (%)", "memory used (bytes)", "memory (bytes)")
    rows: list[tuple[object, ...]] = []
    for host in hosts:
        memory = host.newest.memory
        rows.append((f"{clean(host.host)}: CPU", host.cpu_percent, memory.used_bytes, memory.total_bytes))
        for gpu in host.newest.gpus:
            where = f"{clean(host.host)}: GPU {gpu.index}"
            rows.append((where, gpu.busy_percent, gpu.used_bytes, gpu.total_bytes))
    used = [used for host in hosts if (used := host.newest.memory.used_bytes) is not None]
    reading = "Newest sample of each host" + (f"; host memory up to {format_bytes(max(used))}." if used else ".")
    return Exhibit("live-hosts", "How busy and how full are hosts and devices?", reading, sheet(columns, rows))


@dataclass(frozen=True)
class HostNow:
    """One host's newest sample, and how busy its cores were in the last ones, percent; None where not measured."""

    host: str
    cpu_percent: float | None
    newest: CounterSample


def hosts_now(folder: str) -> list[HostNow]:
    """The newest counters of every host that writes them (`ddprof run --mode monitor`)."""
    hosts = []
    for path in sorted(Path(folder).glob(COUNTERS)) if folder else []:
        samples = list(samples_in(_last_lines(path)))
        timed = [sample for sample in samples[-10:] if sample.cpu.jiffies]
        if samples:
            busy = cores_busy(timed[0], timed[-1]) if timed else None
            hosts.append(HostNow(path.name.split(".")[1], busy, samples[-1]))
    return hosts


def _last_lines(path: Path) -> list[bytes]:
    """Lines in the file's tail, of which the first may be truncated."""
    try:
        if not path.is_file():
            return []
        with path.open("rb") as stream:
            stream.seek(0, 2)
            stream.seek(max(0, stream.tell() - TAIL_BYTES))
            return stream.read(TAIL_BYTES).splitlines()
    except OSError:
        return []


def _page(view: View) -> list[Component]:
    if not has_data(view):
        words = "This job is not running. While a job runs, serve its folder: ddprof serve ddprof-runs/latest."
        return [notice(words)]
    return [exhibit_card(e, "/live", view) for e in exhibits(view)]


PAGE = Page("/live", "Live", exhibits, has_data=has_data, now=_page)
