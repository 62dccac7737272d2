"""Regenerates sample_traces/: a small healthy run and one per finding, from the simulator, each with its truth.

Usage: python benchmarks/make_sample_traces.py [OUT]. Deterministic: the same seeds give the same files.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.oracle.kinds import scenario  # noqa: E402
from benchmarks.oracle.simulate import simulate  # noqa: E402
from benchmarks.oracle.write import write  # noqa: E402

# Kind -> what a person sees; the order is that of `ddprof demo --list`.
KINDS = {
    "clean.plain": ("healthy", "a healthy run: nothing to find"),
    "straggler.compute": ("slow_gpu", "one device is slower than its peers for the same work"),
    "straggler.host": ("slow_host", "one rank's host issues work more slowly"),
    "straggler.imbalance": ("imbalance", "ranks get unequal work, and who is late changes"),
    "input.starved": ("starved_loader", "every rank waits for its data loader"),
    "input.straggler": ("late_loader", "one rank's data loader is late"),
    "input.pageable_copy": ("pageable_copy", "batches are copied from pageable memory"),
    "comm.latency_bound": ("small_buckets", "many small all-reduces pay latency"),
    "comm.no_overlap": ("no_overlap", "communication starts after the compute that could hide it"),
    "comm.bandwidth_bound": ("bandwidth", "the volume is too large for the link"),
    "host.launch_bound": ("launch_bound", "the device waits for kernel launches"),
    "host.sync": ("sync", ".item() calls inside the step"),
    "host.gc": ("gc", "garbage collection at different moments on different ranks"),
    "host.checkpoint": ("checkpoint", "saving state stops the job"),
    "host.allocator": ("allocator", "device memory is allocated inside steps"),
    "pipeline.imbalance": ("slow_stage", "one pipeline stage has more work"),
    "pipeline.bubble": ("bubble", "too few microbatches for the pipeline"),
    "compute.precision": ("fp32", "matrix products run in fp32"),
    "compute.unfused_optimizer": ("unfused_optimizer", "the optimizer runs as many tiny kernels"),
}
FIRST_SEED, SEEDS = 7000, 40
MAX_BYTES = 350_000  # compressed, per sample


def main(out: Path) -> None:
    """Write every sample below `out`, replacing those of the same name."""
    for kind, (name, title) in KINDS.items():
        size = _one(kind, out / name, title)
        print(f"{name:<20} {kind:<28} {size / 1000:7.0f} kB")


def _one(kind: str, folder: Path, title: str) -> int:
    """The smallest run of the kind among the first seeds that fits; its size in bytes."""
    best: tuple[int, Path] | None = None
    with tempfile.TemporaryDirectory() as scratch:
        for seed in range(FIRST_SEED, FIRST_SEED + SEEDS):
            try:
                chosen = scenario(seed, kind)
            except ValueError:
                continue
            spread = chosen.parallel
            if spread.dp * spread.tp * spread.pp > 4 or not chosen.format.collective_args or chosen.missing_ranks:
                continue
            place = Path(scratch) / str(seed)
            write(simulate(chosen), place)
            size = sum(f.stat().st_size for f in (place / "traces").iterdir())
            if best is None or size < best[0]:
                best = (size, place)
            if best[0] < MAX_BYTES:
                break
        if best is None:
            raise SystemExit(f"no seed below {FIRST_SEED + SEEDS} gives a small {kind}")
        _keep(best[1], folder, title)
    return best[0]


def _keep(place: Path, folder: Path, title: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(place / "traces", folder / "traces")
    label = json.loads((place / "label.json").read_text(encoding="utf-8"))
    truth = {
        "title": title,
        "findings": [{"id": f["id"], "ranks": f["culprit_ranks"]} for f in label["faults"]],
        "world_size": label["world_size"],
        "parallelism": label["parallelism"],
        "step_us": label["step_us"],
        "step_without_fault_us": label["counterfactual_step_us"],
        "expected_bound": label["expected_bound"],
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "sample_traces")
