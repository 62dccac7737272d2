"""Pipeline parallel steps: 1F1B (with Megatron's paired sends), GPipe and inference; each stage has its data-parallel
group.
"""

from __future__ import annotations

from benchmarks.oracle.comm import collective, exchange
from benchmarks.oracle.finish import finish
from benchmarks.oracle.interleaved import interleaved
from benchmarks.oracle.loader import BatchQueue
from benchmarks.oracle.rank import BACKWARD, MAIN, Program, Rank
from benchmarks.oracle.step import backward_layer, forward_layer, head_backward, head_forward, load, zero_grad


class Stage:
    """One rank's stage: its neighbours, its layers, and the work of one microbatch."""

    def __init__(self, rank: Rank) -> None:
        parallel = rank.world.parallel
        self.rank, self.stage, self.depth = rank, rank.layout.stage, parallel.pp
        self.microbatches = parallel.microbatches
        self._scale = 1.0 / parallel.microbatches
        self._elems = max(1, parallel.activation_elems // parallel.microbatches)
        members = rank.group("pp").ranks
        self._before = members[self.stage - 1] if self.stage > 0 else None
        self._after = members[self.stage + 1] if self.stage + 1 < self.depth else None
        self._layers = range(rank.world.stage_layers[self.stage])

    def forward(self) -> Program:
        """Forward of one microbatch."""
        for layer in self._layers:
            yield from forward_layer(self.rank, layer, self._scale)
        if self._after is None:
            head_forward(self.rank, self._scale * 0.1)

    def backward(self) -> None:
        """Backward of one microbatch."""
        if self._after is None:
            head_backward(self.rank, self._scale * 0.1)
        for layer in reversed(self._layers):
            backward_layer(self.rank, layer, self._scale)

    def talk_after(self, sends: bool, receives: bool) -> None:
        """Exchange with the next stage: activations out, gradients in."""
        self._talk(self._after, sends, receives)

    def talk_before(self, sends: bool, receives: bool) -> None:
        """Exchange with the stage before: gradients out, activations in."""
        self._talk(self._before, sends, receives)

    def _talk(self, peer: int | None, sends: bool, receives: bool) -> None:
        if peer is None or not (sends or receives):
            return
        self.rank.thread = MAIN
        op = exchange(self.rank, peer, sends, receives, self._elems)
        self.rank.wait_on_stream(op)


def one_forward_one_backward(stage: Stage) -> Program:
    """1F1B: warm up, then alternate, then drain."""
    total = stage.microbatches
    warmup = min(stage.depth - 1 - stage.stage, total)
    for _ in range(warmup):
        stage.talk_before(False, True)
        yield from stage.forward()
        stage.talk_after(True, False)
    steady = total - warmup
    if steady:
        stage.talk_before(False, True)
    for i in range(steady):
        yield from stage.forward()
        stage.talk_after(True, True)
        stage.backward()
        stage.talk_before(True, i + 1 < steady)
    for _ in range(warmup):
        stage.talk_after(False, True)
        stage.backward()
        stage.talk_before(True, False)


def gpipe(stage: Stage) -> Program:
    """GPipe: all forwards, then all backwards."""
    for _ in range(stage.microbatches):
        stage.talk_before(False, True)
        yield from stage.forward()
        stage.talk_after(True, False)
    for _ in range(stage.microbatches):
        stage.talk_after(False, True)
        stage.backward()
        stage.talk_before(True, False)


def forward_alone(stage: Stage) -> Program:
    """Inference: microbatches go through the stages, nothing comes back."""
    for _ in range(stage.microbatches):
        stage.talk_before(False, True)
        yield from stage.forward()
        stage.talk_after(True, False)


def pipeline_step(rank: Rank, queue: BatchQueue) -> Program:
    """One step of a pipeline stage, then the all-reduce over its data-parallel group."""
    stage = Stage(rank)
    schedule = rank.world.parallel.schedule
    if rank.layout.stage == 0:
        yield from load(rank, queue)
    if schedule == "forward":
        yield from forward_alone(stage)
        yield from finish(rank, trains=False)
        return
    zero_grad(rank)
    if schedule == "interleaved":
        yield from interleaved(rank)
    else:
        yield from one_forward_one_backward(stage) if schedule == "1f1b" else gpipe(stage)
    rank.thread = BACKWARD
    model = rank.world.model
    op = collective(rank, "dp", "allreduce", model.params_per_layer * model.layers)
    rank.thread = MAIN
    if op is not None:
        rank.wait_on_stream(op)
    yield from finish(rank)
