"""Installed and published packages agree with pyproject.toml: lock file, licences, conda recipe, table of extras."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ddprof

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCK = (ROOT / ".ci" / "requirements.lock").read_text(encoding="utf-8")


def normal(name: str) -> str:
    """A name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    """The packages of some requirements."""
    return {normal(found[0]) for text in requirements if (found := re.match(r"[\w.-]+", text))}


def test_every_pinned_package_has_hashes_and_names_no_index() -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9])", LOCK, flags=re.MULTILINE)[1:]
    assert len(blocks) > 50
    assert [block.split()[0] for block in blocks if "==" not in block or "--hash=sha256:" not in block] == []
    assert not re.search(r"https?:|file:|index-url|find-links", LOCK)


def test_the_sdist_has_every_header() -> None:
    """setuptools packs what `sources` and `depends` name; without a header the compiled part is left out."""
    modules = PYPROJECT["tool"]["setuptools"]["ext-modules"]
    named = {file for module in modules for file in (*module["sources"], *module.get("depends", ()))}
    there = {file.relative_to(ROOT).as_posix() for file in ROOT.glob("[da]*/**/native/*.[ch]")}
    assert len(there) > 8 and named == there


def test_what_make_setup_installs_is_pinned() -> None:
    extras = re.search(r"^EXTRAS \?= (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert extras is not None
    wanted = names(PROJECT["dependencies"])
    for extra in extras[1].split(","):
        wanted |= names(PROJECT["optional-dependencies"][extra])
        assert f"--extra {extra}" in (ROOT / ".ci" / "lock").read_text(encoding="utf-8")
    assert wanted <= {normal(name) for name in re.findall(r"^([\w.-]+)==", LOCK, re.MULTILINE)}, "run .ci/lock"


def test_the_page_of_licences_has_every_dependency_and_the_table_of_extras_is_whole() -> None:
    text = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \| (.*?) \|", text, re.MULTILINE))
    for extra, needed in {"(always)": PROJECT["dependencies"], **PROJECT["optional-dependencies"]}.items():
        shown = {normal(name) for name, extras in rows.items() if extra in extras.split(", ")}
        assert shown == names(needed), f"{extra}: run python .ci/licences.py"
    assert "not stated" not in text
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == set(PROJECT["optional-dependencies"])


def test_the_conda_recipe_says_the_same_as_pyproject() -> None:
    recipe = pytest.importorskip("yaml").safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == ddprof.__version__
    run = recipe["requirements"]["run"]
    wanted = {re.sub(r"^([\w.-]+)", r"\1 ", text) for text in PROJECT["dependencies"] if ";" not in text}
    assert {text for text in run if isinstance(text, str)} == {*wanted, f"python {PROJECT['requires-python']}"}
    (conditional,) = [text for text in run if isinstance(text, dict)]
    assert conditional["then"] == "tomli >=2" and any(text.startswith("tomli>=2;") for text in PROJECT["dependencies"])
    assert recipe["build"]["python"]["entry_points"] == [f"ddprof = {PROJECT['scripts']['ddprof']}"]
    assert (recipe["about"]["summary"], recipe["about"]["license"]) == (PROJECT["description"], PROJECT["license"])


def test_the_licences_can_be_written_again(tmp_path: Path) -> None:
    for folder in (".ci", "docs"):
        (tmp_path / folder).mkdir()
    for name in (".ci/licences.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    subprocess.run([sys.executable, str(tmp_path / ".ci" / "licences.py")], check=True)
    text = (tmp_path / "docs" / "licences.md").read_text(encoding="utf-8")
    assert re.search(r"^\| `click` \| \(always\) \| BSD-3-Clause \|$", text, re.MULTILINE)
