"""Advice that changes what is computed: followed it trains the same, or it has a condition, or it is not given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from called import HERE, call

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
SCRIPT = str(HERE / "results" / "loops.py")
# Shape -> what is said of reducing less often: "" without a condition, None where it is not said.
SAID = {
    **dict.fromkeys(("plain", "lbfgs", "sam", "gan", "func", "ema", "rl")),
    "accumulated": "",
    "clipped": "Check first that nothing zeroes or reads gradients between these backward passes",
}


@pytest.mark.parametrize("shape", SAID)
def test_followed_advice_trains_the_same(tmp_path: Path, shape: str) -> None:
    run = [sys.executable, "-m", "ddprof.cli.run", "--out", str(tmp_path), "--name", "run", "--skip", "3"]
    call([*run, "--", *LAUNCH, SCRIPT, shape, str(tmp_path / "as_it_is")])
    analyze = [sys.executable, "-m", "ddprof.cli.main", "analyze", str(tmp_path / "latest"), "--format", "json"]
    report: dict[str, Any] = json.loads(call(analyze))
    fixes = [fix for finding in report["findings"] for fix in finding["fixes"]]
    fewer = [fix["condition"] for fix in fixes if "no_sync" in (fix["patch"] or "")]
    # Where bytes are too many for the link, larger batches are named, with what that asks for.
    fewer = [condition for condition in fewer if "batch" not in condition]
    assert fewer in ([], [SAID[shape]]) and (fewer or SAID[shape] != ""), report["findings"]
    for fix in fixes:
        if "barrier" in fix["setting"] or "over all ranks" in fix["setting"]:
            assert fix["condition"], fix
    if fewer == [""]:
        subprocess.run([*LAUNCH, SCRIPT, shape, str(tmp_path / "kept"), "kept"], check=True, timeout=900)
        for rank in range(2):
            before, after = (torch.load(tmp_path / f"{name}.{rank}") for name in ("as_it_is", "kept"))
            assert all(torch.allclose(before[name], after[name], rtol=1e-5, atol=1e-7) for name in before)
