"""The command of a run comes from its manifest, and only where it was one command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ddprof.readers.companions.launch import Launch, launch_of


def _manifest(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_the_command_and_its_folder_are_read(tmp_path: Path) -> None:
    path = _manifest(tmp_path / "manifest.json", json.dumps({"command": "python 'a b.py'", "cwd": "/x", "host": "h"}))
    assert launch_of([path, path]) == Launch("python 'a b.py'", "/x")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"command": 7}', '{"cwd": "/x"}', '{"command": null}'])
def test_what_names_no_command_is_none(tmp_path: Path, text: str) -> None:
    assert launch_of([_manifest(tmp_path / "manifest.json", text)]) is None


def test_nodes_that_each_had_their_own_command_have_none(tmp_path: Path) -> None:
    paths = [_manifest(tmp_path / f"manifest.{n}.json", json.dumps({"command": f"node {n}"})) for n in (0, 1)]
    assert launch_of(paths) is None and launch_of([]) is None
    assert launch_of([str(tmp_path / "gone.json")]) is None
