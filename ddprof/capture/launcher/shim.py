"""Environment variables that make a child process captured: the shim's folder on PYTHONPATH, and the settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ddprof.capture.files.config import CaptureConfig

SHIM = Path(__file__).resolve().parent.parent / "shim"
ENV_SHIM = "DDPROF_SHIM"  # for the .pth route, where PYTHONPATH is ignored (python -E, -I)
# The interpreter's own options, in front of the script, -c or -m.
_OPTIONS = re.compile(r"(?:^|[\s/])python[\d.]*((?:\s+(?:-[XW]\s*\S+|-[A-Za-z]+))+)")
_PTH = "ddprof.capture.launcher.pth"


def child_environment(config: CaptureConfig, base: Mapping[str, str]) -> dict[str, str]:
    """The child's environment: `base` with the shim first on PYTHONPATH, and nothing else changed.

    Raises ValueError where PYTHONPATH cannot name ddprof's own folder.
    """
    if os.pathsep in str(SHIM):
        raise ValueError(f"PYTHONPATH cannot name {SHIM}: it holds a {os.pathsep!r}")
    settings = f"{SHIM}/settings/{config.as_path()}"
    environment = dict(base)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(SHIM), settings, *([inherited] if inherited else [])])
    environment[ENV_SHIM] = settings
    return environment


def obstacle(command_line: Sequence[str]) -> str | None:
    """The reason why no Python process of the command can be captured, by its own options; None without one."""
    for options in _OPTIONS.findall(" ".join(command_line)):
        words = [word for word in options.split() if word.startswith("-") and word[1] not in "XW"]
        letters = "".join(word[1:] for word in words).partition("c")[0].partition("m")[0]
        if "S" in letters:
            return "python -S leaves out sitecustomize, by which capture starts"
        for letter in "IE":
            if letter in letters:
                return (
                    f"python -{letter} ignores PYTHONPATH, by which capture starts; `python -m {_PTH} install` in that "
                    "environment makes it start all the same"
                )
    return None
