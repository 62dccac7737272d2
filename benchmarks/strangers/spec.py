"""Specification of a script: its structure, and its fault with place, ranks, times and amount; drawn by a seed."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.strangers.faults import BESIDE, FAULTS, Fault
from benchmarks.strangers.loops import LOOPS
from benchmarks.strangers.sources import SOURCES

WHO = ("first", "last", "all", "turns", "half")
WHEN = ("always", "every 3rd", "from the 15th", "at random")
SHARES = (0.1, 0.2, 0.35, 0.6, 1.0, 2.0, 3.0)  # of a step without the fault
WIDTHS, DEPTHS, BATCHES = (256, 384, 512), (2, 3, 5), (32, 64, 96)
_FLOPS_PER_MS = 30e6  # of one core, matrices of a few hundred columns
_OVERHEAD_MS = 4.0  # of a step of two ranks over gloo, beside its matrices
_GPU_FLOPS_PER_MS = 40e9  # of an H200, matrices in float32
_GPU_OVERHEAD_MS = 3.0  # its launches, and gradients by sockets
POSITIONS = 512  # of each row on a GPU


@dataclass(frozen=True)
class Spec:
    """One script. `where`: the name of a slot (loops.py, sources.py); `amount_ms`: of the fault, per step."""

    number: int
    loop: str
    source: str
    fault: str
    where: str
    who: str
    when: str
    amount_ms: float
    in_helper: bool
    ranks: int
    steps: int
    width: int
    depth: int
    batch: int
    device: str = "cpu"

    @property
    def structure(self) -> str:
        """In words."""
        return f"{self.loop}, {self.source}"

    @property
    def culprits(self) -> tuple[int, ...]:
        """Ranks that a finding must name; none where all ranks have the fault, or one after the other."""
        chosen = {"first": range(1), "last": range(self.ranks - 1, self.ranks), "half": range(self.ranks // 2)}
        return tuple(chosen.get(self.who, range(0)))

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def draw(seed: int, number: int, ranks: int = 2, steps: int = 50, device: str = "cpu") -> Spec:
    """The script of this number, always the same. `device`: "cpu", or "cuda" of one GPU that all ranks share."""
    chance = random.Random(f"{seed}-{number}")
    loop = chance.choice([name for name in sorted(LOOPS) if device == "cpu" or ranks == 1 or not LOOPS[name].own_gpus])
    source = chance.choice([name for name in sorted(SOURCES) if LOOPS[loop].takes(name)])
    known = [name for name in sorted(FAULTS) if ranks > 1 or "all" in FAULTS[name].whom]
    fault = FAULTS[chance.choice([name for name in known if places(FAULTS[name], loop, source)])]
    where = chance.choice(places(fault, loop, source))
    whom = WHO if ranks > 2 else WHO[:-1] if ranks == 2 else ("all",)
    who = chance.choice([one for one in whom if fault.fits(one, where)])
    is_steady = fault.is_steady or where in SOURCES[source].slots or chance.random() < 0.6
    when = "always" if is_steady else chance.choice(WHEN[1:])
    width, depth, batch = (chance.choice(sizes) for sizes in (WIDTHS, DEPTHS, BATCHES))
    flops = 6 * batch * width * width * depth
    step_ms = _OVERHEAD_MS + flops / _FLOPS_PER_MS
    if device == "cuda":
        step_ms = _GPU_OVERHEAD_MS + flops * POSITIONS / _GPU_FLOPS_PER_MS
    amount = round(max(2.0, chance.choice(SHARES) * step_ms), 1)
    in_helper = chance.random() < 0.6
    return Spec(
        number, loop, source, fault.name, where, who, when, amount, in_helper, ranks, steps, width, depth, batch, device
    )


def places(fault: Fault, loop: str, source: str) -> list[str]:
    """The slots of a structure that a fault can be in."""
    if fault.name in LOOPS[loop].cannot:
        return []
    there = (*LOOPS[loop].slots, *SOURCES[source].slots, *BESIDE)
    return [slot for slot in fault.places if slot in there]
