"""Two nodes of one job, started by torchrun each, are one report: in a folder they share, in two, and in a store."""

import subprocess
import sys
from pathlib import Path

import pytest
from called import HERE, call
from ports import free_port

pytestmark = [pytest.mark.torch, pytest.mark.slow]
SCRIPT = str(HERE / "results" / "loops.py")


@pytest.mark.parametrize("out", ["{0}/runs", "{0}/own{1}", "file://{0}/store", "s3"])
def test_two_nodes_are_one_report(tmp_path: Path, out: str, request: pytest.FixtureRequest) -> None:
    out = request.getfixturevalue("bucket") + "/runs" if out == "s3" else out
    port, started = free_port("127.0.0.2"), []
    for node in range(2):
        run = [sys.executable, "-m", "ddprof.cli.run", "--out", out.format(tmp_path, node), "--skip", "3", "--"]
        nodes = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1"]
        address = ["--master-addr=127.0.0.2", f"--master-port={port}"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", *nodes, *address]
        started.append(subprocess.Popen([*run, *torchrun, SCRIPT, "plain", str(tmp_path / "out")], cwd=tmp_path))
    assert [each.wait(timeout=900) for each in started] == [0, 0]
    given = sorted({out.format(tmp_path, node) for node in range(2)})
    told = call([sys.executable, "-m", "ddprof.cli.main", "analyze", *given])
    assert "2 ranks" in told.splitlines()[0] and "of 2 ranks" not in told, told
