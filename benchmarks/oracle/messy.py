"""Draw messy runs: a job of few ranks, healthy or with a fault, whose recording suffers from one to three messes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from benchmarks.oracle.draws import generator
from benchmarks.oracle.kinds import EVERY_KIND, KNOWN_KINDS, PAUSES, NoScenarioError, draw_scenario
from benchmarks.oracle.mess.catalogue import AFTER_FAULTS, MESSES, add, fits_together
from benchmarks.oracle.spec import Scenario

MOST_MESSES = 3
ALONE_CHANCE = 0.2  # of a run of one device, where its fault needs no other
ALONE = (
    "clean.plain", "clean.jitter", "clean.loader", "clean.first_step", "input.starved", "input.preprocessing",
    "input.pageable_copy", "host.sync", "host.launch_bound", "host.allocator", "host.checkpoint", "compute.precision",
    "compute.unfused_optimizer",
)  # fmt: skip
MOST_RANKS = 8
ATTEMPTS = 60
FAULTY = tuple(kind for kind in KNOWN_KINDS if not kind.startswith("clean.") and "+" not in kind)
CLEAN = tuple(kind for kind in EVERY_KIND if kind.startswith("clean.") and kind != "clean.large")
# Hosts that are ahead absorb pauses, and waits for the device each layer keep them from being ahead.
NEVER_AHEAD = (*PAUSES, "host.sync", "input.pageable_copy")


def messy_scenario(seed: int, clean_share: float, messes: Sequence[str] = (), kinds: Sequence[str] = ()) -> Scenario:
    """The messy run of a seed: healthy with the chance `clean_share`; of the `messes` and `kinds` given, else of all.

    Raises NoScenarioError where the seed has none.
    """
    healthy = generator(seed, "messy").uniform() < clean_share
    for attempt in range(ATTEMPTS):
        draw = generator(seed, "messy", attempt)
        pool = kinds or (CLEAN if healthy else FAULTY)
        kind = str(draw.choice(list(pool)))
        names = choose(draw, [name for name in messes if name in MESSES] or tuple(MESSES))
        if not fits_together(names) or not fits_fault(names, kind):
            continue
        early = tuple(name for name in names if name not in AFTER_FAULTS)
        found = draw_scenario(draw, seed, kind, lambda base, d=draw, k=kind, n=early: small(d, base, k, n))
        if found is None:
            continue
        found = add(draw, found, tuple(name for name in names if name in AFTER_FAULTS))
        if found is not None:
            return found
    raise NoScenarioError(f"seed {seed} has no messy run in {ATTEMPTS} attempts")


def choose(draw: np.random.Generator, messes: Sequence[str]) -> tuple[str, ...]:
    """One to three of them, in the order of the catalogue."""
    count = min(int(draw.integers(1, MOST_MESSES + 1)), len(messes))
    picked = set(draw.choice(list(messes), count, replace=False).tolist())
    return tuple(name for name in MESSES if name in picked)


def fits_fault(names: tuple[str, ...], kind: str) -> bool:
    """True where the fault can be seen at all in such a recording."""
    ahead = "ahead" in names or "foreign" in names
    if ahead and any(part in NEVER_AHEAD for part in kind.split("+")):
        return False
    if "sampled" in names:
        return kind.startswith("clean.")
    if "compiled" in names and kind.startswith("memory.recompute"):
        return False  # graphs name no operators
    return not ("rdv" in names and kind.startswith("comm."))


def small(draw: np.random.Generator, base: Scenario, kind: str, names: tuple[str, ...]) -> Scenario | None:
    """The job with its messes if it is small; nothing of the format of its files is left to chance that a mess sets."""
    if base.cluster.world > MOST_RANKS or not base.format.step_marks:
        return None
    if base.parallel.kind == "ddp" and kind in ALONE and draw.uniform() < ALONE_CHANCE:
        base = alone(base)
    return add(draw, base, names)


def alone(base: Scenario) -> Scenario:
    """The job on one device."""
    host = base.cluster.hosts[0]
    cluster = replace(base.cluster, hosts=(host,), clocks={host: base.cluster.clocks[host]})
    form = replace(base.format, distributed_info=False)
    return replace(base, cluster=cluster, parallel=replace(base.parallel, dp=1), format=form)
