"""Trainers built on torch, and TensorFlow, where they are installed: steps and phases counted exactly in real jobs."""

import importlib.util
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest
from runs import SCRIPTS, TWO_RANKS, forked, good_run, read_json

from ddprof.analyzers.engine import Options, analyze

pytestmark = pytest.mark.slow  # of Accelerate, whose imports cost 9 to 37 CPU s, too
STEPS = 12


@pytest.fixture(scope="module")
def extensions(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build folder of DeepSpeed's extensions: in the user's, a killed build's lock blocks all later ones for ever."""
    return str(tmp_path_factory.mktemp("extensions"))


@pytest.mark.torch
@pytest.mark.parametrize("line", ["trainer", "accelerate", "lightning", *(f"deepspeed {stage}" for stage in range(4))])
def test_steps_and_phases_are_exact(tmp_path: Path, extensions: str, line: str) -> None:
    package, *rest = arguments = line.split()
    _needs("transformers" if package == "trainer" else package)
    command = forked("external.py", *arguments)
    if package == "lightning":  # it starts its second rank itself
        command = [sys.executable, str(SCRIPTS / "external.py"), *arguments]
    environment = {"DS_ACCELERATOR": "cpu", "TORCH_EXTENSIONS_DIR": extensions}
    run = good_run(tmp_path, command, "--skip", "3", "--steps", "3", **environment)
    assert run.manifest["ranks"] == [0, 1]
    (report,) = analyze([run.folder], Options(cache=False))
    # Of what a toy model on busy cores can show, only the samples are certain.
    assert report.steps.count + len(report.steps.left_out) == 3
    assert not [note for note in report.health if note.severity == "error"]
    assert any(finding.id == "input.unsharded" for finding in report.findings) == (package == "deepspeed")
    for rank, sidecar in enumerate(run.sidecars):
        assert sidecar["steps_total"] == STEPS and sidecar["notes"] == []
        assert sidecar["optimizer"]["class"] == "AdamW" and sidecar["dataloader"]["batch_size"] == 4
        assert run.phases(rank) == [6, 6, 6, 3]  # three steps of two accumulated batches
        if package == "deepspeed":
            assert sidecar["deepspeed"]["zero_stage"] == int(rest[0])
        else:
            assert sidecar["parallelism"] == ["ddp"]


@pytest.mark.torch
def test_megatron_core_in_tensor_parallel(tmp_path: Path) -> None:
    """GPTModel of Megatron-core; it has no CPU path, so the script answers for three calls of torch.cuda."""
    _needs("megatron.core")
    run = good_run(tmp_path, [*TWO_RANKS, str(SCRIPTS / "megatron_gpt.py")], "--skip", "3", "--steps", "4")
    for rank, sidecar in enumerate(run.sidecars):
        assert (sidecar["steps_total"], sidecar["notes"]) == (STEPS, [])
        assert run.phases(rank) == [0, 4, 4, 4]
        names = run.names(rank)
        assert names["ddprof::collective.all_reduce"] == names["gloo:all_reduce"] == 13 * 4
    (report,) = analyze([run.folder], Options(cache=False))
    assert report.ledger.job["comm_transfer"] + report.ledger.job["comm_wait"] > 0  # waits inside autograd functions


@pytest.mark.torch
def test_horovod_counts_steps_and_accuses_nobody(tmp_path: Path) -> None:
    """Horovod moves its data itself: what ranks wait for is not in the trace, and the report says so."""
    _needs("horovod")
    command = ["horovodrun", "-np", "2", "--gloo", sys.executable, str(SCRIPTS / "horovod_loop.py")]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = good_run(tmp_path, command, "--skip", "3", "--steps", "4", PATH=path)
    for rank, sidecar in enumerate(run.sidecars):
        assert (sidecar["rank"], sidecar["world_size"], sidecar["rank_source"]) == (rank, 2, "HOROVOD_RANK")
        assert sidecar["steps_total"] == STEPS and run.phases(rank) == [4, 4, 4, 4]
    (report,) = analyze([run.folder], Options(cache=False))
    assert report.steps.count + len(report.steps.left_out) == 4
    assert any("no communication was recorded" in note.issue for note in report.health)
    assert "straggler.host" in {item.id for item in report.abstentions}


def _needs(module: str) -> None:
    with suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:  # without an origin it is the folder beside this file
            return
    pytest.skip(f"{module} is not installed")


@pytest.mark.parametrize("loop", ["fit", "loop"])
def test_tensorflow_keeps_its_own_trace(tmp_path: Path, loop: str) -> None:
    _needs("tensorflow")
    run = good_run(tmp_path, [sys.executable, str(SCRIPTS / "mirrored.py"), loop], "--skip", "3", "--steps", "4")
    (sidecar,) = run.sidecars
    assert sidecar["steps_total"] == 16 and sidecar["notes"] == []
    assert (sidecar["windows"][0]["first_step"], sidecar["windows"][0]["last_step"]) == (3, 6)
    (path,) = run.folder.glob("*.tf.trace.json.gz")
    names = Counter(event["name"] for event in read_json(path)["traceEvents"] if event["ph"] == "X")
    assert [names[f"ProfilerStep#{n}"] for n in range(2, 8)] == [0, 1, 1, 1, 1, 0]
    (report,) = analyze([run.folder], Options(cache=False))
    assert report.steps.count == 4
