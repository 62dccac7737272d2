"""tune.json: the options, candidates and runs of a tuning and, once it has ended, its answer (docs/tuning.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from ddprof.errors import NoUsableInput, UsageError
from ddprof.report.model import Calibration
from ddprof.settings.catalogue import Value
from ddprof.settings.wanted import WantedFix
from ddprof.untrusted.regular_files import read_bounded
from ddprof.untrusted.secrets import masked_data, masked_words

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


# The answer, as stored under `result` and shown.

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


# The file.

FILE = "tune.json"
TRIALS = "trials"  # the folder of all runs, beside it
NAME_PART = "-tune-"  # of the name of every folder of a tuning
_MAX_BYTES = 256 << 20


class TuneDocument(TuneState, kw_only=True):
    """The content of tune.json. `result`: null while the tuning goes on, or where it was ended early."""

    result: TuningAnswer | None = None


_Read = TypeVar("_Read", bound=TuneState)


def read_state(folder: Path) -> TuneState:
    """The state in a folder, to continue from. Raises NoUsableInput."""
    return _read(folder, TuneState)


def read_document(folder: Path) -> TuneDocument:
    """The state with the answer. Raises NoUsableInput."""
    return _read(folder, TuneDocument)


def write_document(state: TuneState, folder: Path, result: TuningAnswer | None = None) -> None:
    """Write a folder's document, without secrets. Raises UsageError."""
    document = msgspec.to_builtins(state)
    if result is not None:
        document["result"] = msgspec.to_builtins(result)
    document["options"]["command"] = masked_words(state.options.command)
    write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(masked_data(document)), indent=1))


def free_folder(wanted: Path) -> Path:
    """The wanted folder, with a number after its name where it is already there."""
    folder, attempt = wanted, 1
    while folder.exists():
        attempt += 1
        folder = wanted.with_name(f"{wanted.name}.{attempt}")
    return folder


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, whole or not at all. Raises UsageError."""
    try:
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        fresh = path.with_name(f".{path.name}.{os.getpid()}")
        fresh.touch(0o600)
        fresh.write_bytes(content)
        os.replace(fresh, path)
    except OSError as error:
        raise UsageError(f"{path}: not written: {error.strerror}") from error


def _read(folder: Path, kind: type[_Read]) -> _Read:
    path = folder / FILE
    try:
        document = msgspec.json.decode(read_bounded(path, _MAX_BYTES), type=kind)
    except OSError as error:
        raise NoUsableInput(f"{path}: {error.strerror or error}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoUsableInput(f"{path}: damaged: {error}") from None
    if document.schema != SCHEMA:
        raise NoUsableInput(f"{path}: schema is {document.schema[:40]!r}, wanted {SCHEMA!r}")
    return document
