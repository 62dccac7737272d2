"""Advice that changes what is computed: followed it trains the same, or it has a condition, or it is not given."""

from pathlib import Path

import pytest
import torch
from called import call, captured, told, torchrun

pytestmark = [pytest.mark.torch, pytest.mark.slow]

# Shape -> what is said of reducing less often: "" without a condition, None where it is not said.
SAID = {
    **dict.fromkeys(("plain", "lbfgs", "sam", "gan", "func", "ema", "rl")),
    "accumulated": "",
    "clipped": "Check first that nothing zeroes or reads gradients between these backward passes",
}


@pytest.mark.parametrize("shape", SAID)
def test_followed_advice_trains_the_same(tmp_path: Path, shape: str) -> None:
    run = captured(tmp_path, torchrun(2, "results/loops.py", shape, str(tmp_path / "as_it_is")), "--skip", "3")
    report = told("analyze", run, "--format", "json")
    fixes = [fix for finding in report["findings"] for fix in finding["fixes"]]
    # Where bytes are too many for the link, larger batches are named, with what that asks for.
    said = (fix["condition"] for fix in fixes if "no_sync" in (fix["patch"] or ""))
    fewer = [condition for condition in said if "batch" not in condition]
    assert fewer in ([], [SAID[shape]]) and (fewer or SAID[shape] != ""), report["findings"]
    for fix in fixes:
        if "barrier" in fix["setting"] or "over all ranks" in fix["setting"]:
            assert fix["condition"], fix
    if fewer == [""]:
        call(torchrun(2, "results/loops.py", shape, str(tmp_path / "kept"), "kept"))
        for rank in range(2):
            before, after = (torch.load(tmp_path / f"{name}.{rank}") for name in ("as_it_is", "kept"))
            assert all(torch.allclose(before[name], after[name], rtol=1e-5, atol=1e-7) for name in before)
