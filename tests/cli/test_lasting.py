"""Modules that last are not collected, and the collector works as before."""

import subprocess
import sys

CODE = """
import gc
from ddprof.cli.lasting import import_lasting
try: import_lasting("ddprof.nothing")
except ModuleNotFoundError: print(gc.isenabled())
module = import_lasting("ddprof.analyzers.engine"); count = gc.get_freeze_count()
again = import_lasting("ddprof.analyzers.engine")
print(module.__name__, again is module, count > 10_000, gc.get_freeze_count() == count, gc.isenabled())
gc.disable(); import_lasting("ddprof.slices.assistants.command"); print(gc.isenabled())
"""


def test_what_was_imported_is_frozen_and_the_collector_is_left_as_it_was() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True", "ddprof.analyzers.engine True True True True", "False"]
