"""Labelled runs, generated and analyzed once per session however many tests look at them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))  # helpers of this folder, not a package
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/ is not installed

import corpus
from labelled_runs import Labelled, Runs

from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write


@pytest.fixture(scope="session")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """`labelled("host.gc")`: the run of that name in corpus.py."""
    made: dict[str, Labelled] = {}

    def make(name: str) -> Labelled:
        if name not in made:
            folder = tmp_path_factory.mktemp("labelled") / name
            made[name] = Labelled(name, write(simulate(corpus.EVERY[name]), folder), folder / "traces")
        return made[name]

    return make
