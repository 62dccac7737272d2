"""The shim folder: what has to be on PYTHONPATH for a child process to be captured."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ddprof.capture.files.config import CaptureConfig
from ddprof.capture.files.layout import SHIM_CONFIG, SHIM_DIR
from ddprof.capture.files.storage import write_bytes

_CAPTURE = Path(__file__).resolve().parent.parent
_SITECUSTOMIZE = _CAPTURE / "_sitecustomize.py"
ENV_SHIM = "DDPROF_SHIM"  # for the .pth route, where PYTHONPATH is ignored (python -E, -I)


def write_shim(config: CaptureConfig) -> Path:
    """Create `<run>/.shim` and return it. Raises OSError.

    It holds a copy of our sitecustomize and the settings, nothing else: a remote rank needs only PYTHONPATH to find
    both. Where the folder's name holds the separator of PYTHONPATH, the shim is a temporary folder of this host.
    """
    shim = Path(config.run_dir) / SHIM_DIR
    if os.pathsep in str(shim):  # PYTHONPATH cannot name it; the settings say where the run folder is
        shim = Path(tempfile.mkdtemp(prefix="ddprof-shim-"))
    shim.mkdir(parents=True, exist_ok=True)
    config.save(shim / SHIM_CONFIG)
    # Whole or not at all: another node of the job may be starting Python from this very folder.
    write_bytes(shim / "sitecustomize.py", _SITECUSTOMIZE.read_bytes())
    return shim


def child_environment(shim: Path, base: Mapping[str, str]) -> dict[str, str]:
    """The environment for the child: `base` with the shim first on PYTHONPATH, and nothing else changed."""
    environment = dict(base)
    inherited = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([str(shim), inherited] if inherited else [str(shim)])
    environment[ENV_SHIM] = str(shim)
    return environment


def package_dir() -> Path:
    """The folder that holds the `ddprof` package."""
    return _CAPTURE.parent.parent
