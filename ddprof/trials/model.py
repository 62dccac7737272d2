"""State of tuning: its options, the candidates, and every run. Written to tune.json (docs/tuning.md)."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ddprof.settings.catalogue import Value
from ddprof.settings.wanted import WantedFix

SCHEMA = "ddprof.tune/1"
DIAGNOSIS, BASELINE = "diagnosis", "baseline"


class Predicted(Struct, frozen=True):
    """A gain as a share of the step, with its range; `by`: "replay" of this very value, or the finding's own price."""

    share: float
    low: float
    high: float
    by: str


class TrialCandidate(Struct, frozen=True):
    """Settings of one object, tried together. `group`: candidates that exclude each other, as values of one setting;
    `is_variant`: another value than the finding suggests; `changes_numbers`: they compute in another precision.
    """

    name: str
    group: str
    values: dict[str, Value]
    at: str
    finding: str
    predicted: Predicted
    is_variant: bool = False
    changes_numbers: bool = False

    @property
    def fix(self) -> WantedFix:
        """The candidate as `ddprof run --apply` takes it."""
        return WantedFix(self.values, self.at, self.finding)


class Held(Struct, frozen=True):
    """Digest of what a rank had trained by the end of a run."""

    digest: str
    sample: tuple[float, ...] = ()
    loss: float | None = None


class Trial(Struct, frozen=True):
    """One run of the command. `settings`: names of the candidates applied to it; `failed`: why the run is void, ""
    where it is valid; `note`: anything odd about it. Times in microseconds per step of the job.
    """

    label: str
    settings: tuple[str, ...]
    folder: str
    took_s: float
    steps: int = 0
    step_us: float | None = None
    steps_us: tuple[float, ...] = ()
    failed: str = ""
    note: str = ""
    held: dict[str, Held] = {}
    peak_bytes: int | None = None
    device_bytes: int | None = None
    budget_s: float | None = None  # that held when it was made: --resume may state another one for what comes after


class RunPlan(Struct, frozen=True):
    """Plan of each run: steps skipped, then steps timed. `most`: the job's own number of steps, null if larger."""

    warm_up: int
    timed: int
    most: int | None = None

    @property
    def last(self) -> int:
        """Number of steps after which a run is ended."""
        return self.warm_up + self.timed


class TuneOptions(Struct, frozen=True):
    """Options of `ddprof tune`."""

    command: tuple[str, ...]
    budget_s: float
    steps: int
    only: tuple[str, ...] = ()
    allow_numerics: bool = False

    def with_command(self, command: tuple[str, ...]) -> TuneOptions:
        """These options with the command as it is run."""
        return replace(self, command=command)

    def with_budget(self, budget_s: float) -> TuneOptions:
        """These options with another budget."""
        return replace(self, budget_s=budget_s)


class TuneState(Struct, kw_only=True):
    """Everything done so far, from which an interrupted tuning resumes. `candidates`: null before the diagnosis."""

    schema: str = SCHEMA
    options: TuneOptions
    cwd: str
    started_utc: str
    plan: RunPlan | None = None
    headline: str = ""
    compute_us: float = 0.0  # per step of the diagnosis
    candidates: tuple[TrialCandidate, ...] | None = None
    left_out: tuple[tuple[str, str], ...] = ()
    is_doubtful: bool = False  # the diagnosis withdrew findings
    trials: list[Trial] = []

    @property
    def spent_s(self) -> float:
        """Total time of the runs, seconds."""
        return sum(trial.took_s for trial in self.trials)
