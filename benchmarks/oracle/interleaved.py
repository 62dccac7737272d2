"""Interleaved 1F1B: every rank holds several chunks of layers, so that the pipeline is filled by a chunk at a time.

The order of forward and backward passes is Megatron-LM's (`forward_backward_pipelining_with_interleaving`).
"""

from __future__ import annotations

from benchmarks.oracle.comm import message
from benchmarks.oracle.rank import MAIN, Program, Rank
from benchmarks.oracle.step import backward_layer, forward_layer, head_backward, head_forward

CHUNKS = 2


class Chunks:
    """One rank's chunks: the k-th forward or backward pass of its schedule."""

    def __init__(self, rank: Rank) -> None:
        parallel = rank.world.parallel
        self.rank, self.stage, self.depth = rank, rank.layout.stage, parallel.pp
        self.passes = parallel.microbatches * CHUNKS
        self._scale = 1.0 / parallel.microbatches
        self._elems = max(1, parallel.activation_elems // parallel.microbatches)
        self._members = rank.group("pp").ranks
        layers = rank.world.stage_layers[self.stage]
        self._layers = [range(c * layers // CHUNKS, (c + 1) * layers // CHUNKS) for c in range(CHUNKS)]

    def forward(self, k: int) -> Program:
        """The k-th forward pass, its input received before and its output sent after."""
        chunk = (k // self.depth) % CHUNKS
        place = chunk * self.depth + self.stage
        if place > 0:
            self._message(-1, sends=False, forward=True)
        for layer in self._layers[chunk]:
            yield from forward_layer(self.rank, layer, self._scale)
        if place == CHUNKS * self.depth - 1:
            head_forward(self.rank, self._scale * 0.1)
        else:
            self._message(1, sends=True, forward=True)

    def backward(self, k: int) -> None:
        """The k-th backward pass."""
        chunk = CHUNKS - 1 - (k // self.depth) % CHUNKS
        place = chunk * self.depth + self.stage
        if place == CHUNKS * self.depth - 1:
            head_backward(self.rank, self._scale * 0.1)
        else:
            self._message(1, sends=False, forward=False)
        for layer in reversed(self._layers[chunk]):
            backward_layer(self.rank, layer, self._scale)
        if place > 0:
            self._message(-1, sends=True, forward=False)

    def _message(self, towards: int, sends: bool, forward: bool) -> None:
        peer = self._members[(self.stage + towards) % self.depth]
        self.rank.thread = MAIN
        op = message(self.rank, peer, sends, forward, self._elems)
        if not sends:
            self.rank.wait_on_stream(op)


def interleaved(rank: Rank) -> Program:
    """Warm up by more passes than without chunks, then alternate, then drain."""
    chunks = Chunks(rank)
    warmup = min((chunks.depth - chunks.stage - 1) * 2 + (CHUNKS - 1) * chunks.depth, chunks.passes)
    for k in range(warmup):
        yield from chunks.forward(k)
    for k in range(chunks.passes - warmup):
        yield from chunks.forward(warmup + k)
        chunks.backward(k)
    for k in range(chunks.passes - warmup, chunks.passes):
        chunks.backward(k)
