"""Whether the script bears being imported again by processes that are not forked."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from types import FrameType

from ddprof.capture.describe.stacks import is_library

_MAX_SOURCE_BYTES = 4 << 20


def unguarded_script() -> str | None:
    """The script's file where the line that led here would run again in each new process; None where it is under
    `if __name__ == "__main__":`, or where no script is known."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if (
            code.co_name == "<module>"
            and frame.f_globals.get("__name__") == "__main__"
            and not is_library(code.co_filename)
        ):
            return None if _is_guarded(Path(code.co_filename), frame.f_lineno) else code.co_filename
        frame = frame.f_back
    return None


def _is_guarded(path: Path, line: int) -> bool:
    try:
        if path.stat().st_size > _MAX_SOURCE_BYTES:
            return False
        tree = ast.parse(path.read_bytes())
    except (OSError, ValueError, SyntaxError):
        return False
    return any(
        isinstance(node, ast.If)
        and any(isinstance(part, ast.Name) and part.id == "__name__" for part in ast.walk(node.test))
        and node.lineno <= line <= (node.end_lineno or node.lineno)
        for node in tree.body
    )
