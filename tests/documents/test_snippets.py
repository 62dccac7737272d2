"""Snippets of README and docs other than command lines: Python runs; YAML, JSON and TOML are valid and meaningful."""

import ast
import importlib.util
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from scratch import Scratch
from snippets import PAGES, ROOT, blocks, command_lines, tomllib

from ddprof.settings.fixes_file import read_fixes

# Pages whose Python other tests run: as the script of the scratch folder.
RUN_ELSEWHERE = {"quick-start.md": "tests/documents/scratch.py"}
WANTS_A_GPU = {"memory.md"}  # torch records snapshots of CUDA's allocator alone
SHOWN = {(page.name, text) for page in PAGES for text in blocks(page, "python")}


def python(page: str) -> str:
    """The Python of a page as one script."""
    return "\n".join(blocks(ROOT / "docs" / page, "python"))


def test_every_page_with_python_is_run_by_a_test() -> None:
    here = {"api.md", "dashboard-pages.md", "tuning-reference.md", "ci.md", "python.md"}
    assert {page for page, _ in SHOWN} == here | WANTS_A_GPU | RUN_ELSEWHERE.keys()


@pytest.mark.torch
def test_the_interface_as_it_is_shown(scratch: Scratch) -> None:
    (scratch.folder / "shown.py").write_text(python("api.md"), encoding="utf-8")
    ended = scratch.run("python shown.py")
    assert ended.code == "0" and "Every rank waits for its data loader" in ended.said, ended.said


@pytest.mark.torch
def test_the_exported_tables_are_read_as_it_is_shown(scratch: Scratch) -> None:
    """Each line by itself: a reader has one of these libraries; those that are not here are left out."""
    ended = scratch.run("ddprof export run --to parquet -o ddprof-parquet")
    assert ended.code == "0", ended.said
    lines = python("dashboard-pages.md").splitlines()
    assert len(lines) == 3
    for line in lines:
        library = line.partition(".")[0]
        if importlib.util.find_spec(library) is None:
            continue
        (scratch.folder / "shown.py").write_text(f"import {library}\nprint({line})\n", encoding="utf-8")
        ended = scratch.run("python shown.py")
        assert ended.code == "0" and ended.said.strip(), ended.said
    rows = pyarrow.parquet.read_table(scratch.folder / "ddprof-parquet" / "rank_causes.parquet")
    assert {"rank", "cause", "mean_us"} <= set(rows.column_names) and "rank_causes.parquet" in lines[0]


@pytest.mark.torch
@pytest.mark.slow  # two real jobs; tests/plugin asks the same of one
def test_the_gates_of_pytest_as_they_are_shown(scratch: Scratch) -> None:
    """The run of the scratch folder has a fault, so that the gates refuse it, each for what it says."""
    folder = scratch.folder / "gated"
    folder.mkdir(exist_ok=True)
    (folder / "ddprof-runs").symlink_to(scratch.folder / "ddprof-runs")
    (folder / "test_gate.py").write_text("import pytest\n\n" + python("ci.md"), encoding="utf-8")
    written = scratch.run("cd gated && pytest -p no:cacheprovider --rootdir=. --ddprof-update-baselines test_gate.py")
    assert (folder / "tests" / "baselines" / "small.json").is_file(), written.said
    ended = scratch.run("cd gated && pytest -p no:cacheprovider --rootdir=. test_gate.py")
    assert ended.code == "1" and "1 passed" in ended.said and "input.starved" in ended.said, ended.said


def test_the_folder_of_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DDPROF_TRIAL", "trial-3")
    names: dict[str, Any] = {}
    exec(compile("import os\n" + python("tuning-reference.md"), "docs/tuning-reference.md", "exec"), names)
    assert names["output"] == "trial-3"


def test_a_notebook_as_it_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("plotly", reason="plotly is not installed (the extra `dashboard`)")
    cells = blocks(ROOT / "docs" / "python.md", "python")
    assert len(cells) >= 5
    (tmp_path / "ddprof-runs").mkdir()
    (tmp_path / "ddprof-runs" / "latest").symlink_to(ROOT / "sample_traces" / "late_loader" / "traces")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"docs/python.md, block {number}", "exec"), names)
    assert names["worst"].id == "input.straggler" and names["worst"].ranks == (2,)
    assert (tmp_path / "report.html").stat().st_size > 50_000 and "<iframe" in names["view"]._repr_html_()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_data_can_be_read(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "json"):
        json.loads(text)
    for text in blocks(page, "python"):
        ast.parse(text, feature_version=(3, 10))
    for text in blocks(page, "toml"):
        tomllib.loads(text)
        if "ddprof.fixes" in text:
            (tmp_path / "FIXES.toml").write_text(text, encoding="utf-8")
            assert read_fixes(tmp_path / "FIXES.toml")
    for text in blocks(page, "yaml"):
        found = yaml.safe_load(text)
        assert isinstance(found, dict) and found
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        for step in found.get("steps", []):
            assert set(step.get("with", {})) <= set(action["inputs"])


def test_yaml_and_other_tools_give_their_command_lines_too() -> None:
    found = command_lines(ROOT / "docs" / "ci.md")
    assert "ddprof report run -o report.html" in found
    assert "ddprof report run -o report.html && ddprof analyze run -o report.json" in found
    launched = command_lines(ROOT / "docs" / "launchers.md")
    assert "ddprof run --run-dir /runs/$JOB_NAME -- torchrun train.py" in launched


def test_an_assistant_is_told_a_server_that_starts(scratch: Scratch) -> None:
    (text,) = blocks(ROOT / "docs" / "assistants.md", "json")
    for server in json.loads(text)["mcpServers"].values():
        arguments = [word.replace("/path/to/", "") for word in server["args"]]
        assert scratch.run(" ".join([server["command"], *arguments])).code == "0"
