"""Why a job failed, asked only of jobs that did."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ddprof.analyzers.failure import failure_of


@pytest.fixture(params=["file", "store"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, memory_url: str) -> str:
    return str(tmp_path) if request.param == "file" else memory_url


def _manifest(folder: str, **content: Any) -> str:
    with fsspec.open(f"{folder}/manifest.json", "w") as file:
        json.dump({"schema": "ddprof.run/1", **content}, file)
    return f"{folder}/manifest.json"


def test_a_job_that_failed_without_a_trace_of_why_says_so(folder: str) -> None:
    failure = failure_of([_manifest(folder, exit_code=7)])
    assert failure is not None and "exit code 7" in failure.sentence


@pytest.mark.parametrize("manifest", [{}, {"exit_code": 0}, {"exit_code": 130}, {"exit_code": "seven"}])
def test_a_job_that_ended_well_or_left_no_manifest_did_not_fail(manifest: dict[str, Any], folder: str) -> None:
    assert failure_of([_manifest(folder, **manifest), f"{folder}/gone/manifest.json"]) is None


def test_what_explains_failures_and_what_redacts_is_imported_only_where_it_is_asked_for(tmp_path: Path) -> None:
    probe = (
        "import sys, ddprof.cli.analyze, ddprof.analyzers.engine; from ddprof.analyzers.failure import failure_of;"
        "assert failure_of(sys.argv[1:]) is None; print(*sys.modules)"
    )
    arguments = [sys.executable, "-c", probe, _manifest(str(tmp_path), exit_code=0)]
    loaded = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    rare = ("ddprof.slices.hangs.", "ddprof.report.redaction", "ddprof.report.gate")
    assert [name for name in loaded if name.startswith(rare)] == [] and "sqlite3" not in loaded
