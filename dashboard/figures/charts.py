"""Charts as data with units, drawn by plotly/.

Colours are names of the theme (CSS variables of report/html/style.py): a ledger cause with dashes, or `line`, `accent`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddprof.causes import CAUSES
from ddprof.tables import Array


@dataclass(frozen=True)
class Part:
    """One part of every stacked bar; `key` chooses its letter. `words`: "" for the only part of a histogram."""

    key: str
    words: str
    color: str
    values: Sequence[float]


@dataclass(frozen=True)
class Stacked:
    """One bar per label, stacked by part; `unit` of the amounts, `axis` names what the labels are."""

    labels: Sequence[str]
    parts: Sequence[Part]
    unit: str
    horizontal: bool = True
    axis: str = ""

    @property
    def drawn_parts(self) -> list[Part]:
        """The parts that are not zero everywhere."""
        return [part for part in self.parts if any(value > 0 for value in part.values)]


@dataclass(frozen=True)
class Ranges:
    """One bar per label with a whisker from low to high, in `unit`; `line_words` describe the whisker."""

    labels: Sequence[str]
    low: Sequence[float]
    value: Sequence[float]
    high: Sequence[float]
    unit: str
    line_words: str = ""


@dataclass(frozen=True)
class Waterfall:
    """Levels in `unit` from the first to the last, change by change, each with a label."""

    labels: Sequence[str]
    levels: Sequence[float]
    unit: str


@dataclass(frozen=True)
class Heat:
    """A number per (line, column), NaN where nothing is known. Differences (`diverging`) are centred on zero.

    `critical`: the value with full colour, the same share of the step in every run, so that chance stays pale. `shade`:
    values to colour by, where other than the numbers. `is_amount`: large values are neither good nor bad, and get a
    neutral colour.
    """

    values: Array
    columns: Sequence[str]
    lines: Sequence[str]
    unit: str
    critical: float
    diverging: bool = False
    axis: str = ""
    shade: Array | None = None
    is_amount: bool = False


@dataclass(frozen=True)
class Dots:
    """One dot per rank and step in ms, the median dashed.

    `steps` and `values` have a place per dot; `ranks` too, or None where a dot is the whole job's step. `outliers` are
    places of dots that stand out.
    """

    steps: Sequence[int]
    values: Sequence[float]
    median: float
    ranks: Sequence[int] | None = None
    outliers: Sequence[int] = ()


@dataclass(frozen=True)
class Bandwidths:
    """Message size (bytes) against bus bandwidth (GB/s), both logarithmic, by operation; `reference` GB/s is dashed."""

    series: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    reference: float
    words: str


@dataclass(frozen=True)
class Dumbbells:
    """Two joined points per label: before and after, in `unit`."""

    labels: Sequence[str]
    before: Sequence[float]
    after: Sequence[float]
    unit: str


@dataclass(frozen=True)
class Amount:
    """A value with its interval; None where it has none."""

    value: float
    low: float | None
    high: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """Ends of the interval; the value twice without one."""
        return (self.value if self.low is None else self.low, self.value if self.high is None else self.high)


@dataclass(frozen=True)
class Forecasts:
    """Prediction and, below it, measurement of each label, in `unit`; None where there is none. Zero is marked."""

    labels: Sequence[str]
    predicted: Sequence[Amount | None]
    measured: Sequence[Amount | None]
    unit: str


@dataclass(frozen=True)
class Curve:
    """One line; None breaks it."""

    words: str
    x: Sequence[float]
    y: Sequence[float | None]
    dotted: bool = False


@dataclass(frozen=True)
class Curves:
    """Lines, and a dashed limit where known. Titles carry the units."""

    curves: Sequence[Curve]
    x_title: str
    y_title: str
    limit: float | None = None
    limit_words: str = ""


@dataclass(frozen=True)
class TimeBlock:
    """A span on a line of a schedule; `kind`: a row of `StageChart.kinds`. `mark` is drawn where there is room."""

    line: int
    start: float
    length: float
    kind: int
    mark: str
    words: str


@dataclass(frozen=True)
class StageChart:
    """Blocks over time, line by line; idle time is blank. `kinds`: words, colour, whether pale."""

    lines: Sequence[str]
    blocks: Sequence[TimeBlock]
    kinds: Sequence[tuple[str, str, bool]]
    axis: str


@dataclass(frozen=True)
class FlameFrame:
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


@dataclass(frozen=True)
class Flame:
    """Frames of a flame graph, each below its caller."""

    frames: Sequence[FlameFrame]


Chart = Stacked | Ranges | Waterfall | Heat | Dots | Bandwidths | Dumbbells | Forecasts | Curves | StageChart | Flame


def all_cause_parts(values: Array) -> list[Part]:
    """Stacked parts from amounts by cause, shape (labels, causes)."""
    return cause_parts({cause: values[:, code].tolist() for code, cause in enumerate(CAUSES)})


def cause_parts(values: Mapping[str, Sequence[float]]) -> list[Part]:
    """Stacked parts that are ledger causes: cause -> values."""
    return [Part(cause, CAUSES[cause].label, CAUSES[cause].color_name, of) for cause, of in values.items()]
