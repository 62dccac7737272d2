"""A transformer as arithmetic: parameters, floating-point operations, bytes of state and of activations.

Formulas: ZeRO (Rajbhandari et al. 2020) section 3 for state, Korthikanti et al. 2022 equations 1 to 6 for activations,
Narayanan et al. 2021 equation 3 for operations.
"""

from __future__ import annotations

from dataclasses import dataclass

PARAMETER_BYTES = 2.0  # bf16
GRADIENT_BYTES = 2.0
ADAM_BYTES = 12.0  # fp32 parameter, momentum, variance (ZeRO's K)
# Bytes of optimizer state per parameter beside the 2 + 2 of bf16 parameter and gradient.
OPTIMIZERS = {"adam": ADAM_BYTES, "adam8bit": 6.0, "adam-bf16": 4.0, "sgd-momentum": 8.0, "sgd": 4.0}
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Shape:
    """A decoder with fused attention, which stores no score matrix: `params` is the total; `seq` tokens a sequence."""

    params: float
    layers: int
    hidden: int
    seq: int
    vocab: int = 51_200
    optimizer_bytes: float = ADAM_BYTES

    def forward_flops(self) -> float:
        """FLOPs of one sequence: matrix products of every layer, attention, and the output layer."""
        tokens, h = float(self.seq), float(self.hidden)
        blocks = 2.0 * (self.params - self.vocab * h)  # 2 per parameter and token
        attention = 4.0 * self.layers * self.seq * h
        return tokens * (blocks + attention + 2.0 * self.vocab * h)

    def model_flops(self) -> float:
        """FLOPs of one sequence, forward and backward, without recomputation: the basis of MFU."""
        return 3.0 * self.forward_flops()

    def executed_flops(self, recompute: str) -> float:
        """FLOPs including recomputation in backward: all of forward, or (selective) only attention's scores."""
        if recompute == "full":
            return 4.0 * self.forward_flops()
        again = 4.0 * self.layers * self.seq * float(self.seq) * self.hidden if recompute == "selective" else 0.0
        return self.model_flops() + again

    def layer_activation_bytes(self, micro: int, tensor: int, recompute: str) -> float:
        """Activation bytes of one layer per rank and microbatch of `micro` sequences; tensor ranks split sequences."""
        return (2.0 if recompute == "full" else 34.0) * self.seq * micro * self.hidden / tensor


def state_bytes(params: float, sharding: str, ranks: int, optimizer_bytes: float = ADAM_BYTES) -> float:
    """Bytes of parameters, gradients and optimizer state per rank under "ddp", "zero1", "zero2", "zero3" (= FSDP).

    ZeRO's Psi x (2 + 2 + K), each part divided by `ranks` where the stage shards it.
    """
    parameter = PARAMETER_BYTES / (ranks if sharding == "zero3" else 1)
    gradient = GRADIENT_BYTES / (ranks if sharding in ("zero2", "zero3") else 1)
    optimizer = optimizer_bytes / (ranks if sharding != "ddp" else 1)
    return params * (parameter + gradient + optimizer)


def parameters_of(layers: int, hidden: int, vocab: int) -> float:
    """12 L h^2 for the blocks and V h for the embedding (Narayanan et al. 2021, equation 2, small terms left out)."""
    return 12.0 * layers * hidden * hidden + vocab * hidden
