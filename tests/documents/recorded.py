"""The run of the scratch folder, and what the pages make of it."""

import shutil

from inprocess import call
from scratch import Scratch
from snippets import ROOT

from tests.slices.hangs.hang_dumps import Job
from tests.slices.span_logs import spans
from tests.snapshots import FORWARD, MIB, Allocator, write


def record(scratch: Scratch) -> None:
    """One real run of two ranks; what the pages make of it stands beside it under the pages' names."""
    folder = scratch.folder
    job = "ddprof run --run-dir ddprof-runs/recorded -- torchrun --standalone --nproc-per-node=2 train.py"
    (folder / "ddprof-runs").mkdir()
    ended = scratch.run(job, programs="forked")
    assert ended.code == "0", ended.said[-3000:]
    scratch.restore()
    for name in ("run", "run1", "run2", "run3", "run4"):
        (folder / name).symlink_to("ddprof-runs/recorded")
    prepared = "ddprof analyze run -o main.json && ddprof patch run/FIXES.toml -o fix.patch"
    generated = "python benchmarks/oracle/generate.py generated/a --count 1 --seed 2"
    ended = call(f"{prepared} && {generated} && ddprof report run -o x.html", scratch)
    assert ended.code == "0", ended.said[-3000:]
    shutil.copy(folder / "main.json", folder / "report.json")
    hanging = Job(2)
    for rank, operation in enumerate(("all_reduce", "barrier")):
        hanging.call(operation, [rank], state="started")
    hanging.write(folder / "hung")
    allocator = Allocator()
    allocator.free(allocator.alloc(MIB, FORWARD))
    write(folder / "snapshot.pickle", allocator.dump())
    shutil.copy(ROOT / "tests/slices/training_logs/samples/megatron_gpt2.log", folder / "train.log")
    spans.write(folder / "outputs" / "structured_logs", fetch=lambda rank, step: 0.08 * (rank == 1), titan=False)
