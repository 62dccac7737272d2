"""Runs whose screens are compared: the shipped samples, real traces, generated runs."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("dash", reason="the dashboard needs dash (pip install 'ddprof[dashboard]')")

from ddprof.dashboard.runs.open_run import load
from ddprof.errors import DdprofError
from tests.consistency.screens import Screens


@pytest.fixture
def screens_of(tmp_path: Path) -> Callable[[Path], Iterator[Screens]]:
    """`screens_of(folder)`: the runs in a copy of it (facts are kept beside traces); none where there is none."""

    def made(folder: Path) -> Iterator[Screens]:
        try:
            opened = load([str(shutil.copytree(folder, tmp_path / folder.name))])
        except DdprofError:
            return
        yield from map(Screens, opened)

    return made
