"""Make the virtual environment at argv[1] with a working pip, on a machine that has nothing but Python.

Debian splits `ensurepip` off into python3-venv. Where it is missing, pip comes from the system's pip, else from the
package index (PIP_INDEX_URL, default PyPI) as a wheel that runs without being installed, else from apt where we are
root. Standard library only; every failure ends in the one line that helps.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import venv
from pathlib import Path

MINIMUM = (3, 10)
APT_LINE = "apt-get install -y python3-venv"


def main(folder: Path) -> None:
    """Make the environment unless it is there and has pip."""
    if sys.version_info < MINIMUM:
        raise SystemExit(
            f"ddprof needs Python {MINIMUM[0]}.{MINIMUM[1]} or newer; {sys.executable} is {sys.version.split()[0]}"
        )
    python = folder / "bin" / "python"
    if _has_pip(python):
        return
    if importlib.util.find_spec("ensurepip"):
        venv.create(folder, with_pip=True, clear=False)
        return
    venv.create(folder, with_pip=False, clear=False)
    for attempt in (_from_system_pip, _from_index, _from_apt):
        if attempt(python) and _has_pip(python):
            return
    raise SystemExit(f"no pip for {folder}: run `{APT_LINE}` as root, then call make again")


def _has_pip(python: Path) -> bool:
    return python.exists() and _runs([str(python), "-m", "pip", "--version"])


def _from_system_pip(python: Path) -> bool:
    return _runs([sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "pip"])


def _from_index(python: Path) -> bool:
    index = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple").rstrip("/") + "/pip/"
    try:
        request = urllib.request.Request(index, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            files = json.load(answer)["files"]
        wheel = [file for file in files if file["filename"].endswith("-py3-none-any.whl") and not file.get("yanked")][
            -1
        ]
        with tempfile.TemporaryDirectory() as scratch:
            local = Path(scratch) / wheel["filename"]
            urllib.request.urlretrieve(urllib.parse.urljoin(index, wheel["url"]), local)
            return _runs([str(python), f"{local}/pip", "install", "--quiet", "--no-index", str(local)])
    except (urllib.error.URLError, OSError, ValueError, KeyError, IndexError) as error:
        print(f"pip could not be fetched from {index}: {error}", file=sys.stderr)
        return False


def _from_apt(python: Path) -> bool:
    if os.geteuid() != 0:
        return False
    if not _runs(["apt-get", "install", "-y", "python3-venv"]):
        _runs(["apt-get", "update"])
        if not _runs(["apt-get", "install", "-y", "python3-venv"]):
            return False
    return _runs([sys.executable, "-m", "venv", "--upgrade-deps", str(python.parent.parent)])


def _runs(command: list[str]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
