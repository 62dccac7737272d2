"""Pickles that ask for code are refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from ddprof.errors import NoUsableInput
from ddprof.readers import discover, read


def test_pickles_that_ask_for_code_are_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/owned",)

    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps({"pg_config": {}, "entries": [Evil()]}, protocol=2))
    (source,) = discover([tmp_path]).sources
    with pytest.raises(NoUsableInput, match="refused"):
        read(source)
    assert not (tmp_path / "owned").exists()
