"""The command of a run comes from its manifest, and only where it was one command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ddprof.readers.companions.launch import Launch, launch_of


@pytest.mark.parametrize(
    ("texts", "launch"),
    [
        (['{"command": "python \'a b.py\'", "cwd": "/x", "host": "h"}'], Launch("python 'a b.py'", "/x")),
        (['{"command": "node 0"}', '{"command": "node 1"}'], None),  # each node had its own
        *(([text], None) for text in ("", "[]", "{", '{"command": 7}', '{"cwd": "/x"}', '{"command": null}')),
        *(([], None), ([None], None)),
    ],
)
def test_the_one_command_of_a_run_and_its_folder(tmp_path: Path, texts: list[str | None], launch: Any) -> None:
    paths = [tmp_path / f"manifest.{number}.json" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text) if text is not None else None
    assert launch_of([*map(str, paths)] * 2) == launch
