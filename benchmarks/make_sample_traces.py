"""Regenerates sample_traces/: a small healthy run and one per finding, from the simulator, each with its truth.

Usage: python benchmarks/make_sample_traces.py [OUT]. Deterministic: it gives the same files every time. The table of
sample_traces/README.md is written too.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))

from benchmarks.oracle.simulate import simulate  # noqa: E402
from benchmarks.oracle.write import write  # noqa: E402
from benchmarks.sample_scenarios import SAMPLES, Sample  # noqa: E402

COMPRESSION = 9
INDICES = 64  # sample indices in a sidecar
HEAD = """# Sample traces

Small runs of known truth, made by the simulator in `benchmarks/oracle` (`python benchmarks/make_sample_traces.py`
writes this folder). `ddprof demo --list` names them, `ddprof demo NAME` opens one. Each folder holds `traces/` (one
Kineto trace per rank, in one of them with what a capture knows beside it) and `truth.json` (the fault, its ranks, the
step with and without it).

| folder | what is in it | finding |
|---|---|---|
"""


def main(out: Path) -> None:
    """Write every sample below `out`, replacing those that are there."""
    rows, total = [], 0
    for sample in SAMPLES:
        truth = _write(sample, out / sample.name)
        size = sum(file.stat().st_size for file in (out / sample.name).rglob("*") if file.is_file())
        total += size
        found = ", ".join(f"`{f['id']}`" for f in truth["findings"]) or "none"
        rows.append(f"| {sample.name} | {sample.title} | {found} |")
        print(f"{sample.name:<20} {found:<30} {size / 1000:7.0f} kB")
    (out / "README.md").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    print(f"{len(SAMPLES)} samples, {total / 1e6:.2f} MB")


def _write(sample: Sample, folder: Path) -> dict[str, Any]:
    """One sample; returns its truth."""
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        label = write(simulate(sample.scenario), scratch)
        (folder / "traces").mkdir(parents=True)
        for rank, file in enumerate(sorted((Path(scratch) / "traces").iterdir())):
            name = f"rank{rank}.node00.{4000 + rank}.0.0.pt.trace.json.gz" if sample.note else file.name
            _recompress(file, folder / "traces" / name)
            if sample.note:
                sidecar = folder / "traces" / f"rank{rank}.node00.{4000 + rank}.0.sidecar.json"
                sidecar.write_text(json.dumps(_sidecar(rank, sample.scenario.cluster.world), indent=1) + "\n")
    findings = [
        {
            "id": f["id"],
            "ranks": f["culprit_ranks"],
            "or": [other for other in f["acceptable_ids"] if other != f["id"]],  # the same cause by another name
        }
        for f in label["faults"]
    ]
    if sample.note:
        findings.append({"id": sample.note, "ranks": [], "or": []})
    truth = {
        "title": sample.title,
        "findings": findings,
        "world_size": label["world_size"],
        "parallelism": label["parallelism"],
        "step_us": label["step_us"],
        "step_without_fault_us": label["counterfactual_step_us"],
        "expected_bound": label["expected_bound"],
    }
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    return truth


def _recompress(source: Path, target: Path) -> None:
    # neither name nor time in the header: the same bytes every time
    with open(target, "wb") as raw, gzip.GzipFile("", "wb", COMPRESSION, raw, mtime=0) as stream:
        stream.write(gzip.decompress(source.read_bytes()))


def _sidecar(rank: int, world_size: int) -> dict[str, Any]:
    """Sidecar of a loader whose sampler does not shard: every rank asks for the same samples."""
    return {
        "schema": "ddprof.run/1",
        "state": "exit",
        "rank": rank,
        "world_size": world_size,
        "host": "node00",
        "parallelism": ["ddp"],
        "dataloader": {
            "num_workers": 4,
            "batch_size": 16,
            "sampler": {"class": "RandomSampler", "shuffle": True, "sharded": False},
        },
        "sample_indices": [(7 * i) % 4096 for i in range(INDICES)],
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else REPOSITORY / "sample_traces")
