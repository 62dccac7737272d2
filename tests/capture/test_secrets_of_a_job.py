"""Secrets that a job names are in nothing that ddprof writes or says of it."""

import base64
import gzip
import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from planted_secrets import KINDS
from runs import SCRIPTS, ddprof_run

from ddprof.slices.assistants.answers import Answers

pytestmark = pytest.mark.torch


def test_forty_kinds_of_secrets_are_nowhere(tmp_path: Path, ddprof: Callable[..., tuple[int, str, str]]) -> None:
    kinds = tmp_path / "kinds.json"
    kinds.write_text(json.dumps(list(KINDS)))
    command = ["python", str(SCRIPTS / "secretive.py"), str(kinds), *KINDS, "--password", "nextword43"]
    run = ddprof_run(tmp_path / "out", command, "--skip", "1", "--steps", "4", NCCL_AUTH_TOKEN="envvalue44",
                     NCCL_SOCKET_NOTE=next(iter(KINDS)))  # fmt: skip
    assert run.code == 1 and len(run.sidecars) == 1, run.output
    said = "\n".join(line for line in run.output.splitlines() if line.startswith("ddprof:"))
    told = {"said": said, "mcp": "".join(f(str(run.folder)) for f in (Answers().verdict, Answers().hang))}
    page, tables = tmp_path / "r.html", tmp_path / "csv"
    asked = ["analyze --no-cache", "analyze --format json", "analyze --format markdown", "hang", "hang --json"]
    for line in (*asked, f"report -o {page}", f"export --to csv -o {tables}"):
        command, *words = line.split()
        told[line] = "".join(map(str, ddprof(command, str(run.folder), *words)))
    assert page.is_file() and tables.is_dir()
    written = [path for path in (*run.folder.iterdir(), page, *tables.iterdir()) if path.is_file()]
    told |= {path.name: _text(path) for path in written if ".pt.trace." not in path.name}  # Kineto's own
    secrets = {*(part for text, part in KINDS.items() if " " not in part), "inthesource42", "nextword43", "envvalue44"}
    assert [(name, secret) for name, text in told.items() for secret in secrets if secret in text] == []
    assert {oct(path.stat().st_mode & 0o777) for path in run.folder.iterdir() if path.is_file()} == {"0o600"}
    assert oct(run.folder.stat().st_mode & 0o777) == "0o700"


def _text(path: Path) -> str:
    """Content of a file, unpacked."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
    for word in re.findall(r"[A-Za-z0-9+/]{40,}={0,2}", text):
        with suppress(ValueError, OSError, EOFError):
            plain = base64.b64decode(word, validate=True)
            text += (gzip.decompress(plain) if plain[:2] == b"\x1f\x8b" else plain).decode("utf-8", "replace")
    return text
