"""Command lines in the documents are ones that ddprof takes, and links lead somewhere."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ddprof.cli.main import cli

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^```(?:bash|sh|shell|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(ddprof [^`\n]+)`")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")


def command_lines(text: str) -> Iterator[str]:
    """Every `ddprof ...` of the code blocks and of running text, to the end of its command."""
    blocks = "\n".join(_BLOCK.findall(text)).replace("\\\n", " ")
    for line in (*blocks.splitlines(), *_INLINE.findall(text)):
        for part in re.split(r"[;|]|&&", line.split(" #")[0]):
            found = re.match(r"\s*(?:srun |mpirun [^`]*?)?(ddprof [a-z].*)", part)
            if found:
                yield found.group(1).strip()


def refused(line: str) -> str | None:
    """Why the command does not take this line; None where it does. Placeholders count as values."""
    line = line.replace("...", "")
    try:
        words = shlex.split(line)[1:]
    except ValueError:  # cut inside a quoted part
        words = line.split()[1:]
    words = words[: words.index("--")] if "--" in words else words
    context: click.Context = click.Context(cli)
    command: click.Command | None = cli
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, *words = words
        command = command.get_command(context, name)
        if command is None:
            return f"no command {name!r}"
        context = click.Context(command, parent=context)
    assert command is not None
    try:
        command.make_parser(context).parse_args(list(words))
    except click.NoSuchOption as error:
        return error.format_message()
    except click.BadOptionUsage:
        return None  # running text that names an option and no value
    return None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_command_lines_are_ones_that_ddprof_takes(document: Path) -> None:
    lines = set(command_lines(document.read_text(encoding="utf-8")))
    assert {line: why for line in sorted(lines) if (why := refused(line))} == {}


def test_a_command_line_that_is_out_of_date_is_found() -> None:
    text = "```bash\nddprof analyse x\nFOO=1 true && ddprof analyze run --nosuch  # so\n```\nor `ddprof run --format`"
    found = [refused(line) for line in command_lines(text)]
    assert len(found) == 3 and all(found)
    assert refused("ddprof run --set num_workers=4 -- torchrun train.py --any") is None


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_to_files(document: Path) -> None:
    links = _LINK.findall(document.read_text(encoding="utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert pages <= set(_LINK.findall(index))
