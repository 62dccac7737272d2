"""Tables of RankFacts on gradients: when they arrive and what is done with them."""

from __future__ import annotations

import enum

from ddprof.tables import Column, Schema


class GradientAct(enum.IntEnum):
    """An action of a rank on the gradients of its parameters."""

    STORED = 0  # by autograd, where the parameter had none
    ADDED = 1  # by autograd, to the one that the parameter had
    ZEROED = 2  # by an optimizer's zero_grad
    TOUCHED = 3  # perhaps: the script changes tensors in place, or takes norms, outside the passes


ENGINE_PASSES = Schema(
    "engine_passes",
    Column("start_ns", "int64", "autograd computes gradients, where no range marks backward passes"),
    Column("end_ns", "int64", "the last node before the next forward pass or optimizer has ended"),
)

ANOMALY_WORK = Schema(
    "anomaly_work",
    Column("start_ns", "int64", "a search for NaN after a node of the backward pass, or an operator begins"),
    Column("end_ns", "int64", "it ends"),
    Column("share", "float64", "part of it that is there for autograd's anomaly mode"),
    Column("is_check", "bool", "a search; else an operator that writes down the Python stack that called it"),
)

UNUSED_SEARCHES = Schema(
    "unused_searches",
    Column("start_ns", "int64", "DistributedDataParallel looks in the graph for parameters that get no gradient"),
    Column("end_ns", "int64", "it has, and has passed the outputs through a node of its own"),
    Column("gradients", "int64", "parameters that get one before it looks again"),
)

GRADIENTS = Schema(
    "gradients",
    Column("start_ns", "int64", "gradients of one kind come, or something is done with them"),
    Column("end_ns", "int64", "the last of them has, before something else is done"),
    Column("act", "uint8", "GradientAct"),
)
