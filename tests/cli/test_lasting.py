"""Modules that last are not collected, and the collector works as before."""

from __future__ import annotations

import subprocess
import sys


def _answer(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_what_was_imported_is_frozen_and_the_collector_goes_on() -> None:
    code = (
        "import gc; from ddprof.cli.lasting import import_lasting;"
        "module = import_lasting('ddprof.analyzers.engine'); count = gc.get_freeze_count();"
        "again = import_lasting('ddprof.analyzers.engine');"
        "print(module.__name__, again is module, count > 10_000, gc.get_freeze_count() == count, gc.isenabled())"
    )
    assert _answer(code) == "ddprof.analyzers.engine True True True True"


def test_an_import_that_fails_leaves_the_collector_as_it_was() -> None:
    code = (
        "import gc; from ddprof.cli.lasting import import_lasting\n"
        "try: import_lasting('ddprof.nothing')\n"
        "except ModuleNotFoundError: print(gc.isenabled())\n"
        "gc.disable(); import_lasting('ddprof.causes'); print(gc.isenabled())"
    )
    assert _answer(code).split() == ["True", "False"]
