"""Command lines of README and docs, and examples that need a run, as a reader would run them; slow where it trains or
asks a store or a cluster.
"""

import importlib.util
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import click
import pyarrow.parquet
import pytest
from filling import NOT_RUN, ends, filled, has_to_train, shape, takes_long, trains
from inprocess import call, can
from scratch import Ended, Scratch, fresh
from snippets import PAGES, ROOT, blocks, command_lines, python

from ddprof.cli.main import cli

PAGE_OF = {line: page.name for page in reversed(PAGES) for line in command_lines(page)}
LINES = [line for line in PAGE_OF if line not in NOT_RUN]
_GATE = re.compile(r"^\| `ddprof ([^`]+)` \| (\d) \| (.*?) ?\|$", re.MULTILINE)
GATES = _GATE.findall((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
_NEEDED = {"wandb": r"--to wandb", "mlflow": r"--to.* mlflow", "tensorboard": r"tensorboard", "distributed": r"dask"}

_SERVES = re.compile("ddprof serve (?!--help)")

Run = Callable[[str], Ended]
There = Callable[[str, str], Ended]


def names_a_command(line: str) -> str | None:
    """`ddprof COMMAND --help` for a line that leaves out what the command asks for, and so only names it; else None."""
    words = shlex.split(line)
    if words[0] != "ddprof":
        return None
    cut = line.endswith((" --", "..."))
    words = [word for word in words[1:] if not (cut and word in ("--", "..."))]
    context: click.Context = click.Context(cli, resilient_parsing=True)
    command: click.Command = cli
    named = ["ddprof"]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        named.append(words.pop(0))
        found = command.get_command(context, named[-1])
        assert found is not None, f"there is no command {named[-1]!r}"
        command, context = found, click.Context(found, resilient_parsing=True)
    try:
        with command.make_context(named[-1], list(words)):
            pass
    except click.NoSuchOption as error:
        raise AssertionError(error.format_message()) from error
    except (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError):
        return shlex.join([*named, "--help"])
    except (click.exceptions.Exit, click.UsageError):
        pass
    return shlex.join([*named, "--help"]) if cut else None


@pytest.fixture
def here(scratch: Scratch) -> Run:
    return lambda line: call(line, scratch)


@pytest.fixture(scope="module")
def known() -> dict[str, Ended]:
    """Ends of commands so far: what two pages name is run once."""
    return {}


@pytest.fixture
def there(request: pytest.FixtureRequest) -> There:
    """Runs a line by a shell, beside the store or the cluster that it names."""

    def run(line: str, programs: str) -> Ended:
        scratch: Scratch = request.getfixturevalue("stored" if "s3://" in line else "scratch")
        if found := re.search(r"(?<=dask://)(HOST:PORT|scheduler:8786)", line):
            line = line.replace(found[0], request.getfixturevalue("scheduler"))
        return scratch.run(fresh(line, abs(hash((line, programs)))), programs=programs)

    return run


def judge(line: str, ended: Ended) -> None:
    """It ended as it should, and not by a defect."""
    assert ended.code in ends(line) and "Traceback" not in ended.said, f"{line}\n-> {ended.code}\n{ended.said[-3000:]}"


def skip_without_library(line: str) -> None:
    """Skips where the extra that the line needs is not installed."""
    for library, pattern in _NEEDED.items():
        if re.search(pattern, line) and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


HERE = [line for line in LINES if not has_to_train(filled(line)) and not takes_long(filled(line))]
TRAINING = [line for line in LINES if trains(filled(line)) and not names_a_command(filled(line))]
RUNS = [line for line in HERE if line in TRAINING and filled(line).startswith("ddprof run ")]
ALIKE = set(RUNS) - set({shape(filled(line)): line for line in reversed(RUNS)}.values())
FAST: list[Any] = [line for line in HERE if line not in ALIKE]  # those alike are run for real, in the slow tests
ELSEWHERE = [pytest.param(line, marks=pytest.mark.slow) for line in LINES if takes_long(filled(line))]


@pytest.mark.torch
@pytest.mark.parametrize("line", FAST + ELSEWHERE, ids=lambda line: f"{PAGE_OF[line]}: {line}")
def test_a_documented_command_line_runs(line: str, here: Run, there: There, known: dict[str, Ended]) -> None:
    """Its job is a stand-in."""
    skip_without_library(line)
    command = filled(line)
    command = names_a_command(command) or command
    if command not in known:
        if takes_long(command) or not can(command):
            known[command] = there(command, "nojob")
        else:
            known[command] = here(command + " --port 0" * bool(_SERVES.match(command)))
        if known[command].code == "2" and re.fullmatch(r"ddprof( [a-z]+)+", command):  # the page names it alone
            known[command] = here(f"{command} --help")
    judge(command, known[command])
    assert not _SERVES.match(command) or "http://" in known[command].said


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("line", TRAINING, ids=lambda line: f"{PAGE_OF[line]}: {line}")
def test_a_documented_job_is_run_and_recorded(line: str, there: There) -> None:
    skip_without_library(line)
    ended = there(filled(line), "bin")
    judge(line, ended)
    assert re.search(r"\d traces? of \d ranks?|^(KEEP|NOTHING|UNDECIDED|outcome)", ended.said, re.MULTILINE), ended.said


@pytest.mark.parametrize(("command", "code", "words"), GATES, ids=[row[0] for row in GATES])
def test_a_gate_ends_as_the_page_says(command: str, code: str, words: str, here: Run) -> None:
    ended = here(f"ddprof {command} --no-cache")
    assert ended.code == code and words in ended.said, ended.said


def test_the_tables_of_gates_and_of_what_is_not_run_are_of_the_documents() -> None:
    assert len(GATES) >= 5 and {code for _, code, _ in GATES} == {"0", "3"}
    assert sorted(set(NOT_RUN) - set(PAGE_OF)) == []


def test_every_line_has_a_command_and_options_that_there_are() -> None:
    """Also lines that are never run, or only by slow tests."""
    parts = [part.strip() for line in PAGE_OF for part in re.split(r"[;|]|&&", filled(line))]
    lines = [part for part in parts if re.match(r"ddprof [a-z]", part) and not part.count('"') % 2]
    assert len(lines) > 150
    for line in lines:
        names_a_command(line)


def test_a_command_line_that_is_new_and_wrong_is_found(here: Run) -> None:
    for words, line in (("no command", "ddprof analyse run"), ("--nosuch", "ddprof analyze run --nosuch")):
        with pytest.raises(AssertionError, match=words):
            names_a_command(line)
    with pytest.raises(AssertionError, match="-> 4"):
        judge("ddprof analyze nowhere", here("ddprof analyze nowhere"))
    assert names_a_command("ddprof run --mode monitor") == "ddprof run --help"
    assert names_a_command("ddprof analyze run") is None


@pytest.mark.torch
def test_the_interface_as_it_is_shown(scratch: Scratch) -> None:
    (scratch.folder / "shown.py").write_text(python("api.md"), encoding="utf-8")
    ended = scratch.run("python shown.py")
    assert ended.code == "0" and "Every rank waits for its data loader" in ended.said, ended.said


@pytest.mark.torch
def test_the_exported_tables_are_read_as_it_is_shown(scratch: Scratch) -> None:
    """Each line by itself: a reader has one of these libraries; those that are not here are left out."""
    ended = scratch.run("ddprof export run --to parquet -o ddprof-parquet")
    assert ended.code == "0", ended.said
    lines = python("dashboard-pages.md").splitlines()
    assert len(lines) == 3
    for library, line in {line.partition(".")[0]: line for line in lines}.items():
        if importlib.util.find_spec(library):
            (scratch.folder / "shown.py").write_text(f"import {library}\nprint({line})\n", encoding="utf-8")
            ended = scratch.run("python shown.py")
            assert ended.code == "0" and ended.said.strip(), ended.said
    rows = pyarrow.parquet.read_table(scratch.folder / "ddprof-parquet" / "rank_causes.parquet")
    assert {"rank", "cause", "mean_us"} <= set(rows.column_names) and "rank_causes.parquet" in lines[0]


@pytest.mark.torch
@pytest.mark.slow  # two real jobs; tests/plugin asks the same of one
def test_the_gates_of_pytest_as_they_are_shown(scratch: Scratch) -> None:
    """The run of the scratch folder has a fault, so that the gates refuse it, each for what it says."""
    folder = scratch.folder / "gated"
    folder.mkdir(exist_ok=True)
    (folder / "ddprof-runs").symlink_to(scratch.folder / "ddprof-runs")
    (folder / "test_gate.py").write_text("import pytest\n\n" + python("ci.md"), encoding="utf-8")
    written = scratch.run("cd gated && pytest -p no:cacheprovider --rootdir=. --ddprof-update-baselines test_gate.py")
    assert (folder / "tests" / "baselines" / "small.json").is_file(), written.said
    ended = scratch.run("cd gated && pytest -p no:cacheprovider --rootdir=. test_gate.py")
    assert ended.code == "1" and "1 passed" in ended.said and "input.starved" in ended.said, ended.said


def test_an_assistant_is_told_a_server_that_starts(scratch: Scratch) -> None:
    (text,) = blocks(ROOT / "docs" / "assistants.md", "json")
    for server in json.loads(text)["mcpServers"].values():
        arguments = [word.replace("/path/to/", "") for word in server["args"]]
        assert scratch.run(" ".join([server["command"], *arguments])).code == "0"
