"""The group: help, version, exit codes, lightness, broken pipes."""

import importlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from ddprof._version import __version__
from ddprof.cli import main as cli_main
from ddprof.slice import own_slices

HEAVY = {"numpy", "pandas", "pyarrow", "torch", "rich", "dash", "plotly", "msgspec", "fsspec", "asyncio", "sqlite3"}
STORES = {"dask", "distributed", "s3fs", "aiohttp", "botocore", "fsspec"}

COMMANDS = {name: row for rows in cli_main.commands(own_slices()).values() for name, row in rows.items()}
# Arguments -> words of the one line that answers them.
REFUSED = {
    ("analyse", "x"): "no command 'analyse' (did you mean analyze?)",
    **{(word,): f"no command '{word}'; `ddprof --help` lists them" for word in ("frobnicate", "x")},
    ("explain", ""): "no finding ''; `ddprof explain` lists them",
    ("explain", "input.stragler"): "(did you mean input.straggler?)",
    ("whatif", "x", "--set", "numworkers=4"): "numworkers: unknown setting (did you mean num_workers?)",
    ("run", "--set", "numworkers=4", "--", "true"): "numworkers: no such setting (did you mean num_workers?)",
    ("run", "--set", "NUM-WORKERS=4", "--", "true"): "NUM-WORKERS: no such setting (did you mean num_workers?)",
    ("run", "--set", "workers_of_the_world=4", "--", "true"): "no setting 'workers_of_the_world' can be applied;",
    ("run", "--out", "memory://", "--", "true"): "--out memory://: what is kept in this process's memory ends with it",
    ("run", "--out", "memory://a/b", "--", "true"): "--out memory://a/b: what is kept in this process's memory ends",
    ("run", "--out", "s3://", "--", "true"): "--out s3://: names no place in the store; want s3://BUCKET/FOLDER",
    ("run", "--out", "gs:///", "--", "true"): "--out gs:///: names no place in the store; want gs://BUCKET/FOLDER",
    ("whatif",): "--set KEY=VALUE",
    ("whatif", "SAMPLE", "--set", "speed=2"): "unknown setting; known: bandwidth",
    ("whatif", "SAMPLE", "--set", "bandwidth=2", "--now", "x=1"): "--now x: unknown",
    ("analyze", "SAMPLE", "--cache", "here", "--no-cache"): "--cache and --no-cache",
    ("analyze", "SAMPLE", "--cache", "nosuch://facts"): "--cache nosuch://facts",
    ("analyze", "SAVED", "SAVED", "-o", "x.html"): "an HTML report holds one run, but 2 were found",
    ("report", "SAVED", "--against", "SAVED", "-o", "x.md"): "--against: x.md is not an HTML file",
    ("serve", ".", "--token", "short"): "least 16 characters",
}


def test_version_of_the_program_and_of_python_dash_m(ddprof) -> None:
    assert ddprof("--version") == (0, f"ddprof, version {__version__}\n", "")
    assert _run("-m", "ddprof", "--version").stdout == f"ddprof, version {__version__}\n"


def _run(*line: str, **how: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *line], text=True, **{"capture_output": True, "timeout": 300, **how})


def test_help_names_every_command_where_it_is_used_and_every_exit_code(ddprof) -> None:
    code, out, _ = ddprof("--help")
    assert code == 0 and all(f"\n  {name} " in out for name in COMMANDS)
    assert all(f"\n    {number}  " in out for number in range(5))
    named = list(cli_main.commands(own_slices())["Fix and prove"])
    assert named == ["whatif", "plan", "patch", "tune", "verify", "compare", "history"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_has_help(ddprof, name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    found = getattr(importlib.import_module(module), attribute or "command")
    assert isinstance(found, click.Command) and ddprof(name, "--help")[0] == 0


@pytest.mark.parametrize("arguments", [("analyze",), ("analyze", "x", "--format", "xml"), ("--wrong",)])
def test_usage_errors_exit_with_2(ddprof, arguments: tuple[str, ...]) -> None:
    code, out, err = ddprof(*arguments)
    assert (code, out) == (2, "") and "Error" in err


@pytest.mark.parametrize("given", REFUSED, ids=" ".join)
def test_what_cannot_be_done_is_answered_in_one_line(ddprof, sample, saved, tmp_path: Path, monkeypatch, given) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    places = {"SAMPLE": sample("starved_loader"), "SAVED": str(saved)}
    code, out, err = ddprof(*(places.get(word, word) for word in given))
    assert (code, out, os.listdir()) == (2, "", []) and REFUSED[given] in err and err.count("\n") == 1


@pytest.mark.parametrize("name", ["analyze", "report", "export", "hang", "memory", "history", "status"])
def test_a_name_longer_than_a_file_can_have_is_answered_in_one_line(ddprof, name: str, tmp_path: Path) -> None:
    code, out, err = ddprof(name, "x" * 5_000, *["-o", str(tmp_path / "out.pftrace")] * (name == "export"))
    assert (code, out) == (4, "") and "internal error" not in err and len(err) < 1_000


def test_completion_and_folders_without_a_run(ddprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = ddprof("status", str(tmp_path / "nosuch"))
    assert code == 4 and "nosuch: no such folder" in err and ddprof("serve", str(tmp_path))[0] == 4
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = ddprof("completion", shell)
        assert code == 0 and "_DDPROF_COMPLETE" in out
    for name, value in {"_DDPROF_COMPLETE": "bash_complete", "COMP_WORDS": "ddprof ana", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    assert "plain,analyze" in ddprof()[1]


LOADED = """
import json, os, sys
def show(): print("\\n" + json.dumps(sorted({name.split(".")[0] for name in sys.modules})), flush=True)
import ddprof
show()
from ddprof.cli.main import cli
cli(["--help"], standalone_mode=False)
show()
for line in (["run", "--out", sys.argv[1], "--", "true"], ["analyze", sys.argv[2], "--no-cache"]):
    try: cli(line, standalone_mode=False)
    except SystemExit as ended: assert not ended.code
    show()
"""


def test_what_is_heavy_is_imported_by_who_needs_it_and_stores_by_who_names_one(sample, tmp_path: Path) -> None:
    done = _run("-c", LOADED, str(tmp_path), sample("healthy"), check=True)
    package, told_help, run, analyze = (set(json.loads(x)) for x in done.stdout.splitlines() if x.startswith('["'))
    assert not HEAVY & package and not HEAVY & told_help and not STORES & (run | analyze)


LASTING = """
import gc
from ddprof.cli.lazy_group import import_lasting
try: import_lasting("ddprof.nothing")
except ModuleNotFoundError: print(gc.isenabled())
module = import_lasting("ddprof.analyzers.engine"); count = gc.get_freeze_count()
again = import_lasting("ddprof.analyzers.engine")
print(module.__name__, again is module, count > 10_000, gc.get_freeze_count() == count, gc.isenabled())
gc.disable(); import_lasting("ddprof.slices.assistants.command"); print(gc.isenabled())
"""


def test_modules_that_last_are_frozen_and_the_collector_is_left_as_it_was() -> None:
    told = _run("-c", LASTING, check=True).stdout
    assert told.splitlines() == ["True", "ddprof.analyzers.engine True True True True", "False"]


def test_a_reader_that_leaves_is_no_error_a_full_disk_one_line_and_2_an_internal_error_one_and_1(saved: Path) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with open(writes, "wb") as nobody_reads:
        line = ("-m", "ddprof.cli.main", "analyze", str(saved), "--format", "json")
        done = _run(*line, capture_output=False, stdout=nobody_reads, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    with open("/dev/full", "wb") as full:
        for words in (line, ("-m", "ddprof.cli.main", "explain", "host.gc")):
            done = _run(*words, capture_output=False, stdout=full, stderr=subprocess.PIPE)
            assert (done.returncode, done.stderr) == (2, "ddprof: stdout: not written: No space left on device\n")
    code = (
        "import ddprof.cli.analyze as analyze\nfrom ddprof.cli import main\n"
        "def broken(*_):\n    raise RuntimeError('two\\nlines')\n"
        "analyze.load_reports = broken\nmain.main()"
    )
    done = _run("-c", code, "analyze", str(saved))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert done.stderr.startswith("ddprof: internal error: RuntimeError: two lines")


def test_a_stream_that_cannot_encode_gets_replacements(ddprof, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    code, _, err = ddprof("analyze", str(saved))
    assert (code, err) == (0, "") and b"Largest saving: " in written.getvalue()
