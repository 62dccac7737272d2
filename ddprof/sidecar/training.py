"""Capture's knowledge of the training itself, typed: copies of a model, gradients, epochs (docs/run-folder.md).

Part of the sidecar: missing is None or empty.
"""

from __future__ import annotations

from msgspec import Struct, field

from ddprof.sidecar.bounded import Count, Rank, Real, Whole


class CodeLine(Struct, frozen=True):
    """A line of the user's own code."""

    file: str
    line: Count
    function: str

    @property
    def words(self) -> str:
        """The line for people: "train.py:88 evaluate()"."""
        call = self.function if self.function.startswith("<") else f"{self.function}()"
        return f"{self.file}:{self.line} {call}"


class ReplicatedModel(Struct, frozen=True):
    """A model with possible copies on other ranks: columns with one entry per tensor, buffers after parameters.

    `kind` "ddp", or "module": what optimizers update outside any wrapper. `checksums`: eight digits per tensor.
    """

    name: str | None = field(name="class", default=None)
    kind: str = ""
    ranks: tuple[Rank, ...] = ()
    broadcast_buffers: bool | None = None
    line: CodeLine | None = None
    names: tuple[str, ...] = ()
    buffers: tuple[Count, ...] = ()
    sizes_bytes: tuple[Count, ...] = ()
    checksums: str = ""
    values: tuple[Real | None, ...] = ()
    nan: tuple[Count, ...] = ()

    @property
    def sums(self) -> tuple[str, ...]:
        """The checksum of each tensor."""
        return tuple(self.checksums[at : at + 8] for at in range(0, len(self.checksums), 8))


class ReplicaState(Struct, frozen=True):
    """Digests of a rank's model after a step; `unchanged`: no trained parameter is another than `updates` before.
    `rates`: learning rates of the parameter groups of all optimizers.
    """

    step: Whole | None = None
    rates: tuple[Real | None, ...] = ()
    updates: Count = 0
    unchanged: bool | None = None
    models: tuple[ReplicatedModel, ...] = ()


class BatchNorms(Struct, frozen=True):
    """Batch normalisation layers of a model with statistics from this rank's batch alone."""

    layers: Count = 0
    name: str | None = field(name="class", default=None)
    kind: str = ""
    first: str = ""  # the name of the first of them


class LeftInEvaluation(Struct, frozen=True):
    """A model trained in evaluation mode in the last `steps`, from `step` on, with layers that act otherwise in it."""

    name: str | None = field(name="class", default=None)
    at: str = ""  # the line that switched it
    step: Count = 0
    steps: Count = 0
    layers: tuple[str, ...] = ()


class WithoutGradient(Struct, frozen=True):
    """A parameter that had no gradient in `steps`; `never`: in no step of the window or later, and without state."""

    name: str
    elements: Count = 0
    steps: tuple[Whole, ...] = ()
    never: bool = False


class OptimizerGradients(Struct, frozen=True):
    """Gradients of one optimizer's parameters in the steps of a window, and in `followed` steps after it.

    `kept_steps`: of the `watched_steps` those before which nothing zeroed the gradients of the step before.
    """

    optimizer: str = ""
    line: CodeLine | None = None
    steps: tuple[Whole, ...] = ()
    followed: Count = 0
    parameters: Count = 0
    missing: tuple[WithoutGradient, ...] = ()
    stateful: bool = False
    watched_steps: Count = 0
    kept_steps: Count = 0


class ShuffledPasses(Struct, frozen=True):
    """Passes over a shuffling sampler's data; `repeated`: those in the exact order of an earlier whole pass."""

    begun: Count = 0
    ended: Count = 0
    repeated: Count = 0
    trains: bool = False
    line: CodeLine | None = None
