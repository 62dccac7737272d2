"""`ddprof serve` is refused without a long token or a run."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from ddprof.errors import NoUsableInput, UsageError

command = pytest.importorskip("ddprof.cli.serve").command


def test_serve_needs_a_long_token_and_a_run(tmp_path: Path) -> None:
    assert isinstance(CliRunner().invoke(command, [str(tmp_path), "--token", "short"]).exception, UsageError)
    assert isinstance(CliRunner().invoke(command, [str(tmp_path)]).exception, NoUsableInput)
