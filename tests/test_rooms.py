"""The file tree alone answers a stranger: rooms are one sentence, and tests lie where their sources lie."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("analyzers", "dashboard", "workloads")  # tests of other folders lie as in ddprof/
# Tests of no module of the package: of whole jobs, documents and forges, and of what only developers run.
OF_NO_ROOM = {"acceptance", "ci", "consistency", "documents", "fuzz", "oracle", "samples", "site", "strangers"}


def test_a_room_is_one_sentence() -> None:
    """The first paragraph of a room's `__init__.py` says in one sentence what is in it."""
    rooms = [file for top in ("ddprof", *MAPPED, "sample_traces") for file in (ROOT / top).rglob("__init__.py")]
    first = {room: (ast.get_docstring(ast.parse(room.read_text("utf-8"))) or "").split("\n\n")[0] for room in rooms}
    assert [str(room) for room, text in first.items() if not text.endswith(".") or ". " in text] == []


def test_test_files_lie_where_their_sources_lie() -> None:
    """`test_NAME.py` tests a module, or a room from its door: the room it lies in or one inside.

    Tests of whole runs stand at the top of a folder of tests."""
    lost = []
    for file in (ROOT / "tests").glob("*/**/test_*.py"):
        place = file.parent.relative_to(ROOT / "tests")
        if len(place.parts) == 1 or place.parts[0] in OF_NO_ROOM:
            continue
        name, room = file.stem.removeprefix("test_"), ROOT / ("" if place.parts[0] in MAPPED else "ddprof") / place
        is_of_file = (room / f"{name}.py").exists() or (room / f"{name}.js").exists()
        if not (is_of_file or (room / name).is_dir() or room.name == name):
            lost.append(file.relative_to(ROOT).as_posix())
    assert lost == []


def test_contributing_lists_every_slice() -> None:
    assert subprocess.run([sys.executable, str(ROOT / ".ci" / "house.py"), "--check"], timeout=300).returncode == 0


def test_the_twenty_questions_of_a_newcomer_are_answered_by_paths_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("## Where is it?")[1].split("\n## ")[0]
    rows = [line.split("|")[2] for line in text.splitlines() if line.startswith("|")][2:]
    answers = [re.findall(r"`([\w./]+)`", row) for row in rows]
    assert len(answers) == 20 and all(answers)
    assert {path for path in re.findall(r"`([\w./]+/[\w./]*)`", text) if not (ROOT / path).exists()} == set()
