"""A line of the pages in this process: to start Python for each of two hundred would be most of the time."""

import io
import re
import runpy
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout

import pytest
from scratch import Ended, Scratch

from ddprof.cli.main import main

_QUOTED = re.compile(r"'[^']*'")
_PART = re.compile(r"(ddprof (?!(run|mcp|tune|verify .*--)\b)|python (-m )?benchmarks\b)[^|&;<>*$]*")


def can(line: str) -> bool:
    """True where nothing but ddprof and the programs of benchmarks/ is called, parted by `&&`, and no job started."""
    parts = _QUOTED.sub("", line).split(" && ")
    return all(_PART.fullmatch(part) or (part.startswith("ddprof ") and part.endswith("--help")) for part in parts)


def call(line: str, scratch: Scratch) -> Ended:
    """The end of a line that can, in the folder and environment of `scratch`. A server ends once it listens."""
    code, said = "0", io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(said):
        patch.chdir(scratch.folder)
        for name, value in scratch.environment.items():
            patch.setenv(name, value)
        patch.setattr("sys.excepthook", sys.excepthook)  # which main() replaces
        patch.setattr("signal.signal", lambda *_: None)
        patch.setattr("werkzeug.serving.BaseWSGIServer.serve_forever", lambda _: None)
        for part in line.split(" && "):
            code = _end(shlex.split(part), patch)
            if code != "0":
                break
        said.seek(0)
        return Ended(code, said.read())


def _end(words: list[str], patch: pytest.MonkeyPatch) -> str:
    """The exit code of one command."""
    is_module = words[1] == "-m"
    patch.setattr("sys.argv", words if words[0] == "ddprof" else words[1 + is_module :])
    try:
        if words[0] == "ddprof":
            main()
        elif is_module:
            runpy.run_module(words[2], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[1], run_name="__main__")
    except SystemExit as ended:
        return str(ended.code or 0)
    return "0"
