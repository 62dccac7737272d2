"""Fixtures every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """The folder with real traces (`traces/`) and labelled samples (`oracle_samples/`): $DDPROF_SHARED_TRACES or ../shared."""
    stated = os.environ.get("DDPROF_SHARED_TRACES")
    folder = Path(stated) if stated else Path(__file__).resolve().parents[2] / "shared"
    if not (folder / "traces").is_dir():
        pytest.skip(f"no real traces: {folder} does not exist (set DDPROF_SHARED_TRACES)")
    return folder
