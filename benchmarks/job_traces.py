"""Writes big traces of three kinds of job that the simulator knows: FSDP, DDP with Python stacks, a pipeline.

    python benchmarks/job_traces.py /tmp/fsdp8 --job fsdp
    python benchmarks/job_traces.py /tmp/ddp8 --job ddp
    python benchmarks/job_traces.py /tmp/pipeline8 --job pipeline

Each kind takes its own way through the analysis (units of sharded parameters, buckets and frames, stages), and one
that nobody times gets slow unseen. Equal arguments give equal files, byte for byte; 8 ranks x 250,000 events take half
a minute. One rank computes slower: it is in OUT.truth.json, as `generate_traces.py` writes it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

if __package__ in (None, ""):  # run as a script: make the repository importable
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.small_runs import fault, small_run
from benchmarks.oracle.spec import Format, Model, Parallel, Scenario
from benchmarks.oracle.write import write

STAGES, MICROBATCHES = 4, 16
SLOW_RANK, SLOWDOWN = 5, 0.08
SHAPES, STACKS = Format(shapes=True), Format(shapes=True, stacks=True)
JOBS = {  # layers, which on a pipeline are those of a stage; how the model is spread; what the files hold
    "fsdp": (24, lambda ranks: Parallel("fsdp", dp=ranks), SHAPES),
    "ddp": (24, lambda ranks: Parallel("ddp", dp=ranks), STACKS),
    "pipeline": (6, lambda ranks: Parallel("pp", dp=ranks // STAGES, pp=STAGES, microbatches=MICROBATCHES), SHAPES),
}


def scenario(job: str, ranks: int, steps: int) -> Scenario:
    """A job of a kind, one of whose ranks is slow."""
    layers, parallel, form = JOBS[job]
    model = Model(layers=layers, unit_us=390.0, params_per_layer=10_000_000)
    slow = fault("straggler.compute", SLOWDOWN, SLOW_RANK, mode="all")
    return small_run(
        slow, ranks=ranks, model=model, loader_us=15_000.0, steps=steps, parallel=parallel(ranks), form=form
    )


def main() -> None:
    """Write one step to count its events, then as many as the size asked for takes."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--job", choices=sorted(JOBS), required=True)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--events", type=int, default=250_000, help="per rank")
    options = parser.parse_args()
    made = options.out.with_name(options.out.name + ".made")
    probe = write(simulate(scenario(options.job, options.ranks, 1)), made)
    shutil.rmtree(made)
    steps = max(1, round(options.events * options.ranks / probe["events"]))
    label = write(simulate(scenario(options.job, options.ranks, steps)), made)
    (made / "traces").replace(options.out)
    shutil.rmtree(made)
    print(f"{options.out}: {steps} steps, {label['events']} events, {label['bytes'] / 1e6:.0f} MB unpacked")
    truth = {"slow_rank": SLOW_RANK, "slowdown": 1 + SLOWDOWN, "ranks": options.ranks}
    options.out.with_name(options.out.name + ".truth.json").write_text(json.dumps(truth, indent=2) + "\n")


if __name__ == "__main__":
    main()
