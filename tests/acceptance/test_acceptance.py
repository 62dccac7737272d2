"""Scripts that share nothing with the workloads (a function and a row here each): each fault is found first, with its
rank and line; no rank of a healthy run is accused, quiet or beside a busy process. DDPROF_ROUNDS=10 runs all so often.
"""

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from called import captured, told, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.slow]

ROUNDS = range(int(os.environ.get("DDPROF_ROUNDS", "1")))
ON_ONE_RANK = ("host.checkpoint", "straggler.host", "straggler.imbalance", "straggler.unexplained")
SMALL_OR_MUCH = ("comm.bandwidth_bound", "comm.latency_bound")
SLOW_CORE = ("straggler.host", "straggler.compute", "straggler.unexplained", "host.stalled")


@dataclass(frozen=True)
class Fault:
    """A script with arguments, and what its first finding must be: one of these ids, these ranks, with this line.
    `needs`: the package that it imports."""

    script: str
    ids: tuple[str, ...]
    ranks: tuple[int, ...]
    line: str = ""
    needs: str = "torch"


FAULTS = (
    *(Fault(f"uneven_work.py evaluate_on_first {every}", ON_ONE_RANK, (0,), "evaluate()") for every in (1, 5)),
    Fault("uneven_work.py save_on_first none", ("host.checkpoint",), (0,), "keep()"),
    Fault("uneven_work.py save_on_first barrier", ("host.checkpoint",), (0,), "keep()"),
    Fault("uneven_work.py statistics_on_first 50", ON_ONE_RANK, (0,), "log_parameters()"),
    Fault("in_every_step.py callbacks_on_first 50", ON_ONE_RANK, (0,), "on_step_end()"),
    Fault("uneven_work.py uneven_shards", ("straggler.imbalance",), (1,)),
    Fault("uneven_work.py longer_sequences 50", ("straggler.imbalance",), (0,)),
    Fault("busy_core.py", SLOW_CORE, (1,)),
    Fault("after_each_step.py meet_every_step 150", ("comm.barrier",), (), "line_up()"),
    Fault("after_each_step.py gather_objects 150", ("comm.barrier",), (), "after()"),
    Fault("after_each_step.py probe_on_first 150", ON_ONE_RANK, (0,), "epoch()"),
    Fault("after_each_step.py save_every_second_step 150", ("host.checkpoint",), (0,)),
    Fault("after_each_step.py moving_average 150", ("host.script",), (), "trail()"),
    Fault("after_each_step.py tokenize_in_loop 150", ("input.starved",), (), "featurize()"),
    Fault("after_each_step.py parameter_norms 150", ("host.script",), (), "report()"),
    Fault("after_each_step.py log_to_disk 150", ("host.script", "host.checkpoint"), (), "emit()"),
    Fault("after_each_step.py audit_on_second 150", ON_ONE_RANK, (1,), "audit()"),
    Fault("loaders.py lock_of_workers 120", ("input.starved",), (), "read()"),
    Fault("loaders.py workers_each_epoch 150", ("input.starved",), (), "persistent_workers"),
    Fault("loaders.py slow_mount 120", ("input.straggler",), (0,), "read_tile()"),
    Fault("loaders.py one_writer_database 120", ("input.starved",), (), "no shared lock"),
    Fault("uneven_work.py embed_long_documents 120", ("straggler.imbalance",), (0,)),
    Fault("histograms_in_callback.py 80", ON_ONE_RANK, (0,), "histograms()", needs="transformers"),
    Fault("report_on_second.py 100", ON_ONE_RANK, (1,), "write_report()", needs="lightning"),
    Fault("in_every_step.py tracker_in_loop 120", ("host.script",), (), "push()"),
    Fault("in_every_step.py clip_each_tensor 150", ("host.script",), (), "limit_each()"),
    Fault("uneven_work.py pulse_on_second 80", ON_ONE_RANK, (1,), "pulse()"),
    Fault("in_every_step.py hook_counts_gradients 150", ("host.script",), (), "count_large()"),
    Fault("loaders.py long_lines_in_stream 120", ("input.straggler",), (1,)),
    Fault("after_each_step.py reduce_each_micro_batch 600", SMALL_OR_MUCH, (), "no_sync"),
)
# Script -> package that it needs.
LOOPS = ("ddp", "fsdp2", "gan", "accumulation", "distillation", "lbfgs", "compiled", "plain_all_reduce")
HEALTHY = {f"loops.py {loop}": "torch" for loop in LOOPS} | {"hf_trainer.py": "transformers"}
HEALTHY |= {"accelerated.py": "accelerate", "lightning_ddp.py": "lightning", "deepspeed_zero1.py": "deepspeed"}


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.script.replace(".py", "").replace(" ", "-"))
def test_the_first_finding_is_the_fault(tmp_path: Path, fault: Fault, number: int) -> None:
    if fault.ids == SLOW_CORE and os.getloadavg()[0] >= (os.cpu_count() or 1):
        pytest.skip("no core is free: all ranks wait for one, and the report must name none")
    if importlib.util.find_spec(fault.needs) is None:
        pytest.skip(f"{fault.needs} is not installed")
    report = _report(tmp_path, f"faults/{fault.script}")
    assert report["findings"], _said(report)
    first = report["findings"][0]
    assert first["id"] in fault.ids and tuple(first["ranks"]) == fault.ranks, _said(report)
    assert fault.line in json.dumps(first), _said(report)


@pytest.mark.parametrize("number", ROUNDS)
@pytest.mark.parametrize("is_beside", [False, True], ids=["quiet", "beside-a-busy-process"])
@pytest.mark.parametrize("script", HEALTHY)
def test_no_rank_of_a_healthy_run_is_accused(tmp_path: Path, script: str, is_beside: bool, number: int) -> None:
    if importlib.util.find_spec(HEALTHY[script]) is None:
        pytest.skip(f"{HEALTHY[script]} is not installed")
    # It computes all the time, wherever the scheduler lets it.
    busy = [subprocess.Popen([sys.executable, "-c", "while True: sum(range(100000))"]) for _ in range(is_beside)]
    try:
        report = _report(tmp_path, f"healthy/{script}")
    finally:
        for process in busy:
            process.kill()
            process.wait()
    accused = [finding for finding in report["findings"] if finding["ranks"] and finding["severity"] != "info"]
    assert not accused, _said(report)


def _report(out: Path, script: str) -> dict[str, Any]:
    """Report of `ddprof analyze` on a run of two ranks."""
    return told("analyze", captured(out, torchrun(2, *script.split())), "--format", "json")


def _said(report: dict[str, Any]) -> str:
    """The verdict, what was found and why something was not judged, for whoever reads a failure."""
    told = [f"{f['severity']} {f['id']} {f['ranks']}: {f['summary']}" for f in report["findings"]]
    return "\n".join([report["verdict"]["headline"], *told, *map(str, report.get("health", []))])
