"""Which calls of a script can be edited with certainty, by what they call."""

from __future__ import annotations

from dataclasses import dataclass

from ddprof.settings.catalogue import DDP, FSDP1, FSDP2, LOADER, OPTIMIZER, ZERO_GRAD


@dataclass(frozen=True)
class EditableCall:
    """A constructor or function of torch: the packages from which it is imported, its names, and how many arguments
    may be given by position without reaching one that is set by name."""

    package: str
    names: tuple[str, ...]
    positions: int


_OPTIMIZERS = (
    *("SGD", "Adam", "AdamW", "Adagrad", "ASGD", "Adadelta", "Adafactor", "Adamax", "NAdam", "RAdam", "RMSprop"),
    "Rprop",
)

EDITABLE = {
    LOADER: EditableCall("torch.utils.data", ("DataLoader",), 5),
    DDP: EditableCall("torch.nn.parallel", ("DistributedDataParallel",), 4),
    FSDP1: EditableCall("torch.distributed.fsdp", ("FullyShardedDataParallel",), 5),
    FSDP2: EditableCall("torch.distributed", ("fully_shard",), 1),
    OPTIMIZER: EditableCall("torch.optim", _OPTIMIZERS, 2),
    ZERO_GRAD: EditableCall("", ("zero_grad",), 0),
}
# Settings whose value in the call is a name of torch's, not the value itself.
BY_OTHER_NAMES = {(FSDP1, "reshard_after_forward"), (FSDP1, "backward_prefetch")}


def is_call_of(qualified: str, target: str) -> bool:
    """Whether a qualified name, as the imports of a script give it, is what makes objects of a kind."""
    editable = EDITABLE.get(target)
    if editable is None:
        return False
    package, _, name = qualified.rpartition(".")
    if name not in editable.names:
        return False
    return not editable.package or package == editable.package or package.startswith(editable.package + ".")
