"""The group: help, version, exit codes, lightness, broken pipes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ddprof._version import __version__
from ddprof.cli import main as cli_main
from ddprof.cli.dev import DEVELOPERS
from ddprof.slice import own_slices

HEAVY = {"numpy", "pandas", "pyarrow", "torch", "rich", "dash", "plotly", "msgspec", "fsspec", "asyncio", "sqlite3"}

COMMANDS = {name: row for rows in cli_main.commands(own_slices()).values() for name, row in rows.items()}


def test_version(ddprof) -> None:
    assert ddprof("--version") == (0, f"ddprof, version {__version__}\n", "")


def test_python_dash_m_is_the_same_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ddprof", "--version"], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout == f"ddprof, version {__version__}\n"


def test_help_names_every_command_and_exit_code(ddprof) -> None:
    code, out, _ = ddprof("--help")
    assert code == 0
    assert all(f"\n  {name} " in out for name in COMMANDS)
    assert not any(f"\n  {name} " in out for name in cli_main.UNLISTED)
    assert all(f"\n    {number}  " in out for number in range(5))


def test_help_of_the_developers_group_names_its_commands(ddprof) -> None:
    code, out, _ = ddprof("dev", "--help")
    assert code == 0
    assert all(f"\n  {name} " in out for name in DEVELOPERS)
    assert all(ddprof("dev", name, "--help")[1] for name in DEVELOPERS)


@pytest.mark.parametrize("name", [*COMMANDS, *cli_main.UNLISTED])
def test_every_command_exists_and_has_help(ddprof, name: str) -> None:
    found = importlib.import_module({**COMMANDS, **cli_main.UNLISTED}[name][0]).command
    assert isinstance(found, click.Command)
    assert ddprof(name, "--help")[0] == 0


@pytest.mark.parametrize("arguments", [("analyze",), ("analyze", "x", "--format", "xml"), ("--wrong",)])
def test_usage_errors_exit_with_2(ddprof, arguments: tuple[str, ...]) -> None:
    code, out, err = ddprof(*arguments)
    assert (code, out) == (2, "")
    assert "Error" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("analyse", "x"), "no command 'analyse' (did you mean analyze?)"),
        (("frobnicate",), "no command 'frobnicate'; `ddprof --help` lists them"),
        (("explain", "input.stragler"), "(did you mean input.straggler?)"),
        (("whatif", "x", "--set", "numworkers=4"), "numworkers: unknown setting (did you mean num_workers?)"),
        (
            ("run", "--set", "numworkers=4", "--", "true"),
            "--set numworkers: no such setting (did you mean num_workers?)",
        ),
    ],
)
def test_a_misspelt_name_is_answered_in_one_line(ddprof, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = ddprof(*arguments)
    assert (code, out) == (2, "") and words in err and err.count("\n") == 1


def test_status_of_a_folder_that_is_missing(ddprof, tmp_path: Path) -> None:
    code, _, err = ddprof("status", str(tmp_path / "nosuch"))
    assert code == 4 and "nosuch: no such folder" in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(ddprof, shell: str) -> None:
    code, out, _ = ddprof("completion", shell)
    assert code == 0
    assert "_DDPROF_COMPLETE" in out


def test_completion_completes_commands() -> None:
    environment = {**os.environ, "_DDPROF_COMPLETE": "bash_complete", "COMP_WORDS": "ddprof ana", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "ddprof.cli.main"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert "plain,analyze" in done.stdout


@pytest.mark.parametrize(
    "code", ["import ddprof", "from ddprof.cli.main import cli; cli(['--help'], standalone_mode=False)"]
)
def test_nothing_heavy_is_imported(code: str) -> None:
    probe = f"import json, sys\n{code}\nprint('\\n' + json.dumps(sorted(m.split('.')[0] for m in sys.modules)))"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=60, check=True)
    assert not HEAVY & set(json.loads(done.stdout.splitlines()[-1]))


def test_a_reader_that_leaves_is_no_error(saved: Path) -> None:
    command = f"{sys.executable} -m ddprof.cli.main analyze {saved} --format json"
    script = f"set -o pipefail; for i in 1 2 3; do {command} | head -c 1 >/dev/null || exit 9; done"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_internal_error_is_one_line_and_1(saved: Path) -> None:
    code = (
        "import ddprof.cli.load as load\nfrom ddprof.cli import main\n"
        "def broken(*_):\n    raise RuntimeError('two\\nlines')\n"
        "import ddprof.cli.analyze as analyze\nanalyze.load_reports = broken\nmain.main()"
    )
    command = [sys.executable, "-c", code, "analyze", str(saved)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("ddprof: internal error: RuntimeError: two lines")
    assert done.stderr.count("\n") == 1


def test_a_stream_that_cannot_encode_gets_replacements(saved: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "ddprof.cli.main", "analyze", str(saved)]
    done = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"STRAGGLER-BOUND" in done.stdout


@pytest.mark.parametrize(
    "call",
    [
        "import ddprof",
        "cli(['run', '--out', sys.argv[1], '--', 'true'], standalone_mode=False)",
        "cli(['analyze', sys.argv[2], '--no-cache'], standalone_mode=False)",
    ],
)
def test_clusters_and_stores_are_imported_by_who_names_one(tmp_path: Path, repo_root: Path, call: str) -> None:
    code = f"""
import sys
from ddprof.cli.main import cli
try:
    {call}
except SystemExit as ended:
    assert not ended.code
print("loaded", sorted({{"dask", "distributed", "s3fs", "aiohttp", "botocore", "fsspec"}} & set(sys.modules)))
"""
    sample = repo_root / "sample_traces" / "healthy"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(sample)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "loaded []"
