"""FIXES.toml: what is written is read back, and what is no such file is refused in one line."""

from pathlib import Path

import pytest

from ddprof.errors import UsageError
from ddprof.settings.fixes_file import parse_fixes, read_fixes, write_fixes
from ddprof.settings.wanted import WantedFix

HEAD = 'schema = "ddprof.fixes/1"\n'


def test_what_is_written_is_read_back() -> None:
    fixes = (
        WantedFix({"num_workers": 4, "persistent_workers": True}, 'a "b"/tr\\ain.py:57', "input.starved"),
        WantedFix({"bucket_cap_mb": 12.5}),
        WantedFix({"multiprocessing_context": "spawn"}),
    )
    text = write_fixes([(fix, "why\nnot") for fix in fixes], ["from a\nrun"])
    assert parse_fixes(text) == fixes and text.startswith("# from a?run\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(("", "schema"), ("schema = 1", "schema"), (HEAD + "[fix]\nset = {}", "schema and")),
        *((HEAD + "[[fix]]\nat = 'a.py:1'", "needs set"), (HEAD + "[[fix]]\nset = {}", "sets nothing")),
        (HEAD + "[[fix]]\nset = { num_workers = 2 }\nwho = 1", "has who"),
        (HEAD + "[[fix]]\nset = { num_workers = 2 }\nat = 1", "are text"),
        (HEAD + "[[fix]]\nset = { num_workers = 1979-05-27 }", "whole number"),
        (HEAD + "[[fix]]\nset = { num_workers = [2] }", "whole number"),
        (HEAD + "[[fix]]\nset = { NCCL_PROTO = { a = 1 } }", "a number or a word"),
        (HEAD + "[[fix]", ""),
    ],
)
def test_another_file_or_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_fixes(tmp_path / "FIXES.toml")
    (tmp_path / "FIXES.toml").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_fixes(tmp_path / "FIXES.toml")
