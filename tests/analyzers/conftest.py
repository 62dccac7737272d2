"""Labelled runs, generated and analyzed once per session however many tests look at them."""

from __future__ import annotations

import json
import os
import shutil
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
    """`labelled("host.gc")`: the run of that name in corpus.py; the workers of pytest-xdist share its files."""
    made: dict[str, Labelled] = {}
    own = tmp_path_factory.mktemp("labelled")
    shared = own.parents[1] / "labelled" if "PYTEST_XDIST_WORKER" in os.environ else own / "made"
    shared.mkdir(exist_ok=True)

    def make(name: str) -> Labelled:
        if name not in made:
            folder = shared / name
            if not folder.exists():
                write(simulate(corpus.EVERY[name]), own / name)
                try:
                    (own / name).rename(folder)
                except OSError:  # another worker was first
                    shutil.rmtree(own / name)
            made[name] = Labelled(name, json.loads((folder / "label.json").read_text()), folder / "traces")
        return made[name]

    return make
