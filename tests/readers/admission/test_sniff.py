"""What is no trace is refused in one true line."""

from __future__ import annotations

from pathlib import Path

import pytest
from malformed import FOLDER
from shared_formats import FORMATS

from ddprof.errors import NoUsableInput
from ddprof.readers import discover


def test_an_execution_trace_is_recognised(shared_dir: Path) -> None:
    with pytest.raises(NoUsableInput, match="this is an execution trace, not a timeline; capture one with"):
        discover([shared_dir / FORMATS / "execution_trace"])


@pytest.mark.usefixtures("decoding")
@pytest.mark.parametrize(
    ("name", "reason"), [("empty.json", "an empty file"), ("html_error_page.json", "an HTML page")]
)
def test_what_is_no_trace_is_one_true_line(shared_dir: Path, name: str, reason: str) -> None:
    with pytest.raises(NoUsableInput, match=f"{name}: {reason}") as caught:
        discover([shared_dir / FOLDER / name])
    assert "\n" not in str(caught.value)
