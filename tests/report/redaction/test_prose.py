"""The list of words that a redacted report keeps is that of the sources."""

import runpy
from pathlib import Path


def test_the_list_of_words_is_that_of_the_sources(repo_root: Path) -> None:
    script = runpy.run_path(str(repo_root / ".ci" / "prose_words.py"))
    listed = script["LIST"].read_text(encoding="utf-8").splitlines()
    assert listed == script["words"](), "python .ci/prose_words.py"
