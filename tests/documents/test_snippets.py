"""README and docs without their command lines: Python runs, data can be read, links lead somewhere; the quick start."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from scratch import made
from snippets import PAGES, ROOT, blocks, command_lines, python, tomllib

from ddprof.settings.fixes_file import read_fixes

# Pages whose Python other tests run: as the script of the scratch folder.
RUN_ELSEWHERE = {"quick-start.md": "tests/documents/scratch.py"}
WANTS_A_GPU = {"memory.md"}  # torch records snapshots of CUDA's allocator alone
_NOT_HERE = ("ddprof serve", "git apply")  # one never ends, the other needs a repository around the folder
SHOWN = {(page.name, text) for page in PAGES for text in blocks(page, "python")}


def test_every_page_is_in_the_index_and_one_with_python_is_run_by_a_test() -> None:
    assert {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"} <= set(links(ROOT / "docs" / "index.md"))
    here = {"api.md", "dashboard-pages.md", "tuning-reference.md", "ci.md", "python.md"}
    assert {page for page, _ in SHOWN} == here | WANTS_A_GPU | RUN_ELSEWHERE.keys()


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
    report = "ddprof report run -o report.html"
    assert {report, f"{report} && ddprof analyze run -o report.json"} <= set(command_lines(ROOT / "docs" / "ci.md"))
    assert "ddprof run --run-dir /runs/$JOB_NAME -- torchrun train.py" in command_lines(ROOT / "docs" / "launchers.md")


def links(document: Path) -> list[str]:
    return re.findall(r"\]\((?!https?:|mailto:|#)([^)#\s]+)", document.read_text(encoding="utf-8"))


@pytest.mark.parametrize("document", [ROOT / "CONTRIBUTING.md", *PAGES], ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    assert [link for link in links(document) if not (document.parent / link).exists()] == []


@pytest.mark.torch
@pytest.mark.slow
def test_a_reader_who_types_what_it_says_gets_to_the_verified_fix(tmp_path: Path) -> None:
    """The fast tests run each of its lines, and its script, in the scratch folder."""
    pytest.importorskip("torch")
    pytest.importorskip("libcst")
    lines = "\n".join(blocks(ROOT / "docs" / "quick-start.md", "bash")).splitlines()
    after = lines[next(at for at, line in enumerate(lines) if line.startswith("ddprof run")) :]
    commands = "\n".join(line.replace("=8", "=2") for line in after if not line.startswith(_NOT_HERE))
    assert all(f"ddprof {name} " in commands for name in ("run", "analyze", "report", "compare", "verify", "patch"))
    ended = made(tmp_path, set()).run(f"set -e\n{commands}", programs="nothing")
    assert ended.code == "0", ended.said[-3000:]
    assert "Largest saving: Every rank waits for its data loader" in ended.said
    assert "Faster by " in ended.said and "mostly data loader" in ended.said
    assert re.search(r"^predicted .*\nmeasured .*\noutcome ", ended.said, re.MULTILINE)
    assert "num_workers=" in (tmp_path / "fix.patch").read_text(encoding="utf-8")
