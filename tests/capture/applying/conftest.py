"""What tests of several appliers need."""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `appliers` is a helper of this folder, not a package


@pytest.fixture
def alone(tmp_path: Path) -> Any:
    """A process group of this process only."""
    torch = pytest.importorskip("torch")
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()
