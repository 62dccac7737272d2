"""Guard of the server: an input that arrives while it runs is shown, or refused in one line.

Folders are read again beside a job that writes them, and strangers' files are uploaded: whatever goes wrong there must
neither end the server nor hide the runs that it shows.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import TypeVar

from ddprof.errors import DdprofError, NoUsableInput
from ddprof.report.phrases import clean

Result = TypeVar("Result")


class Vanished(NoUsableInput):
    """A file disappeared, or became unreadable, during a read: worth another try."""


def attempt(read: Callable[[], Result]) -> Result:
    """The result of `read`. Raises DdprofError, in one clean line, for any error; Vanished for a file's."""
    try:
        return read()
    except DdprofError as error:
        raise NoUsableInput(clean(str(error))) from error
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        raise Vanished(clean(named or type(error).__name__)) from error
    except Exception as error:
        if os.environ.get("DDPROF_DEBUG"):
            traceback.print_exc()
        words = f"a defect of ddprof: {type(error).__name__} (DDPROF_DEBUG=1 shows where; please report it)"
        raise NoUsableInput(f"the input could not be analyzed: {words}") from error
