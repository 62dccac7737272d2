"""Fixtures of tests of several appliers."""

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    """A process group of this process only."""
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
