"""Why a job failed, asked only of jobs that did."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest

from ddprof.analyzers.failure import failure_of


def _run(folder: Path, **manifest: Any) -> str:
    path = folder / "manifest.json"
    path.write_text(json.dumps({"schema": "ddprof.run/1", **manifest}))
    return str(path)


def test_a_job_that_failed_without_a_trace_of_why_says_so_also_in_a_store(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    for name, code in (("failed", 7), ("ended", 0)):
        written = json.dumps({"schema": "ddprof.run/1", "exit_code": code}).encode()
        store.pipe(f"/failures/{name}/manifest.json", written)
    for manifest in (_run(tmp_path, exit_code=7), "memory://failures/failed/manifest.json"):
        failure = failure_of([manifest])
        assert failure is not None and "exit code 7" in failure.sentence
    assert failure_of(["memory://failures/ended/manifest.json", "memory://failures/gone/manifest.json"]) is None


@pytest.mark.parametrize("manifest", [{}, {"exit_code": 0}, {"exit_code": 130}, {"exit_code": "seven"}])
def test_a_job_that_ended_well_or_left_no_manifest_did_not_fail(manifest: dict[str, Any], tmp_path: Path) -> None:
    assert failure_of([_run(tmp_path, **manifest), str(tmp_path / "gone" / "manifest.json")]) is None


def test_what_explains_failures_and_what_redacts_is_imported_only_where_it_is_asked_for(tmp_path: Path) -> None:
    probe = (
        "import sys, ddprof.cli.analyze, ddprof.analyzers.engine; from ddprof.analyzers.failure import failure_of;"
        "assert failure_of(sys.argv[1:]) is None; print(*sys.modules)"
    )
    arguments = [sys.executable, "-c", probe, _run(tmp_path, exit_code=0)]
    loaded = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.split()
    rare = ("ddprof.slices.hangs.", "ddprof.report.redaction", "ddprof.report.gate")
    assert [name for name in loaded if name.startswith(rare)] == [] and "sqlite3" not in loaded
