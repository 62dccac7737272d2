"""Runs as small as they can be and still show one thing plainly: what samples and tests are made of."""

from __future__ import annotations

from benchmarks.oracle.spec import Cluster, Fault, Format, Loader, Model, Noise, Parallel, Scenario

SEED = 7
HOST_OFFSET_US = 1500.25


def cluster(ranks: int, hosts: int = 1) -> Cluster:
    """Ranks over hosts in blocks; each further host's clock is 1.5 ms ahead of the one before."""
    names = [f"node{i:02d}" for i in range(hosts)]
    return Cluster(
        hosts=tuple(names[rank * hosts // ranks] for rank in range(ranks)),
        clocks={name: (HOST_OFFSET_US * i, 0.0) for i, name in enumerate(names)},
    )


def fault(finding: str, strength: float, *ranks: int, **detail: float | str | bool) -> Fault:
    """One fault in a line: its finding, its size, who has it, and the settings now and recommended."""
    return Fault(finding, strength, ranks, detail)


def small_run(
    *faults: Fault,
    ranks: int,
    model: Model,
    loader_us: float,
    kind: str = "clean",
    hosts: int = 1,
    steps: int = 3,
    parallel: Parallel | None = None,
    form: Format | None = None,
) -> Scenario:
    """A run of `ranks` data-parallel ranks on one host, unless told otherwise, named by its first fault or `kind`."""
    name = faults[0].id if faults else kind
    return Scenario(
        name=name,
        kind=name,
        seed=SEED,
        model=model,
        cluster=cluster(ranks, hosts),
        parallel=parallel or Parallel("ddp", dp=ranks),
        loader=Loader(cost_us=loader_us),
        noise=Noise(),
        steps=steps,
        faults=faults,
        format=form or Format(),
    )
