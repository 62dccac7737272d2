"""Commands in README and docs: command lines, Python, YAML, each with its page."""

import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELLS = ("bash", "sh", "shell", "")

_BLOCK = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_STEP = re.compile(r"^\s*sh '([^']+)'", re.MULTILINE)  # of a Jenkinsfile
# Programs that a reader is told to start. A span that begins with another word is a name, a value or code.
_PROGRAMS = re.compile(
    r"(?:[A-Z_]+=\S+ )*(?:ddprof|python3?|pipx?|uvx?|make|git|docker|kubectl|ssh|srun|sbatch|mpirun|torchrun|nsys|ray|"
    r"pytest|mkdocs|chromium|wandb|mlflow|tensorboard|comet|conda|apt-get|\.ci/\w+|aws|gcloud|curl) "
)


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of these languages."""
    found = _BLOCK.findall(page.read_text(encoding="utf-8"))
    return [textwrap.dedent(text) for language, text in found if language in languages]


def command_lines(page: Path) -> list[str]:
    """Every command line of a page, in its order, each once."""
    lines: list[str] = []
    # Text between blocks, with language and text of the block behind it.
    parts = iter([*_BLOCK.split(page.read_text(encoding="utf-8")), "", ""])
    for text, language, block in zip(parts, parts, parts, strict=True):
        lines += [*_spans(text), *_of_block(language, textwrap.dedent(block))]
    return list(dict.fromkeys(lines))


def _spans(text: str) -> list[str]:
    return [span for span in _SPAN.findall(text) if _PROGRAMS.match(span)]


def _of_block(language: str, text: str) -> Iterator[str]:
    if language in SHELLS:
        yield from _logical_lines(text)
    elif language in ("console", "text"):
        yield from (line[2:].strip() for line in text.splitlines() if line.startswith("$ "))
    elif language == "groovy":
        yield from _STEP.findall(text)
    elif language == "yaml":
        yield from _of_yaml(yaml.safe_load(text))


def _logical_lines(text: str) -> Iterator[str]:
    """Lines of a script, those that go on at the next one put together, comments left out."""
    for line in text.replace("\\\n", " ").splitlines():
        command = re.sub(r"(^|\s)#.*$", "", line).strip()
        if command:
            yield " ".join(command.split())


def _of_yaml(value: object) -> Iterator[str]:
    """Commands that a forge or a cluster would start: `script:` and `run:` lines, and `command:` as a list."""
    listed = [("", one) for one in value] if isinstance(value, list) else []
    for key, inner in value.items() if isinstance(value, dict) else listed:
        if key == "script" and isinstance(inner, list):
            yield from inner
        elif key == "run" and isinstance(inner, str):
            yield from _logical_lines(inner)
        elif key == "command" and isinstance(inner, list):
            yield " ".join(re.sub(r"\$\((\w+)\)", r"$\1", str(word)) for word in inner)
        elif key != "with":  # what is given to an action
            yield from _of_yaml(inner)


def python(page: str) -> str:
    """The Python of a page as one script."""
    return "\n".join(blocks(ROOT / "docs" / page, "python"))
