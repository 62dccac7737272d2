"""The second way in, for interpreters that ignore PYTHONPATH (`python -E`, `python -I`).

    python -m ddprof.capture.launcher.pth install     # writes one line into this environment's site-packages
    python -m ddprof.capture.launcher.pth remove

The line does nothing unless `ddprof run` has set DDPROF_SHIM. `ddprof run` itself does not depend on it.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from ddprof.capture.launcher.shim import ENV_SHIM

FILE_NAME = "ddprof-capture.pth"
# `site` runs lines of a .pth file that begin with "import"; an error in one is printed whenever Python starts.
LINE = (
    f"import os; p, found, _ = os.environ.get({ENV_SHIM!r}, '').partition('/shim/settings/'); "
    "p += '/shim/sitecustomize.py'; found and os.path.isfile(p) and __import__('runpy').run_path(p)\n"
)


def install(site_packages: Path) -> Path:
    """Write the file and return its path. Raises OSError."""
    path = site_packages / FILE_NAME
    path.write_text(LINE, encoding="ascii")
    return path


def remove(site_packages: Path) -> None:
    """Delete the file, if it exists. Raises OSError."""
    (site_packages / FILE_NAME).unlink(missing_ok=True)


def main(arguments: list[str]) -> int:
    """Exit code 0, or 2 on wrong usage."""
    site_packages = Path(sysconfig.get_paths()["purelib"])
    if arguments == ["install"]:
        sys.stdout.write(f"{install(site_packages)}\n")
    elif arguments == ["remove"]:
        remove(site_packages)
    else:
        sys.stderr.write("usage: python -m ddprof.capture.launcher.pth install|remove\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
