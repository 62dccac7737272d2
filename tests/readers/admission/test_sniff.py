"""What a file is, by its content."""

from __future__ import annotations

from pathlib import Path

import pytest
from read_traces import FORMATS

from ddprof.errors import NoUsableInput
from ddprof.readers import discover


def test_an_execution_trace_is_recognised(shared_dir: Path) -> None:
    with pytest.raises(NoUsableInput, match="this is an execution trace, not a timeline; capture one with"):
        discover([shared_dir / FORMATS / "execution_trace"])
