"""The answer of a tuning, as stored in tune.json (`result`) and shown."""

from __future__ import annotations

from msgspec import Struct

from ddprof.report.model import Calibration
from ddprof.trials.model import Predicted, TrialCandidate

KEEP, NOTHING, UNDECIDED = "keep", "nothing to change", "undecided"  # verdicts; the last one is a state too
KEPT, REJECTED = "kept", "rejected"


class MeasuredGain(Struct, frozen=True):
    """A gain as a share of the step, negative for a loss, with an interval that holds at every look of the test; null
    before the first."""

    share: float
    low: float | None
    high: float | None
    pairs: int


class Results(Struct, frozen=True):
    """A trained result against the baselines'. `kind`: "same" (every bit), "like_baseline" (differs no more than
    baselines do), "differs", "unknown".

    `distance`: of the parameters, relative to their size; `baseline_distance`: of baselines to each other; `loss`: of
    the last step with the setting and without, of the first rank that has both.
    """

    kind: str
    distance: float | None
    baseline_distance: float | None
    loss: tuple[float, float] | None


class Memory(Struct, frozen=True):
    """Device memory of the rank with least to spare: peak reserved and total, in bytes."""

    peak_bytes: int
    device_bytes: int


class Tried(Struct, frozen=True):
    """Settings and their outcome. `state`: kept, won (beaten by a better one, or not in the set), lost, failed,
    rejected, undecided; `beside`: the settings that they were tried on top of.
    """

    settings: tuple[str, ...]
    beside: tuple[str, ...]
    finding: str
    state: str
    why: str
    predicted: Predicted | None
    measured: MeasuredGain | None
    results: Results
    memory: Memory | None


class Untried(Struct, frozen=True):
    """A fix without a run, and the reason."""

    settings: str
    why: str


class TuningAnswer(Struct, frozen=True):
    """The answer. `step_us`: of the unchanged command; `after_us`: with the chosen settings, by their measured gain.

    `smallest_share`: the smallest gain that the runs would have shown; null where none was compared.
    """

    verdict: str
    chosen: tuple[TrialCandidate, ...]
    measured: MeasuredGain | None
    step_us: float | None
    after_us: float | None
    least_share: float
    smallest_share: float | None
    baseline_memory: Memory | None
    tried: tuple[Tried, ...]
    untried: tuple[Untried, ...]
    runs: int
    run_s: float
    spent_s: float
    calibration: dict[str, Calibration] = {}
    patch: str = ""  # a unified diff; "" where no line can be edited
    by_hand: tuple[tuple[str, str], ...] = ()  # settings that are not in it, with the reason
