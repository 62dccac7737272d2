"""A wheel of somebody else adds a command and a format by its entry point alone."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

TOY = Path(__file__).with_name("toy_slice.py")


def test_a_wheel_adds_a_command_and_a_format(tmp_path: Path) -> None:
    wheel = tmp_path / "toy_slice-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.write(TOY, TOY.name)
        file.writestr("toy_slice-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: toy-slice\nVersion: 1.0\n")
        file.writestr("toy_slice-1.0.dist-info/entry_points.txt", "[ddprof.slices]\ntoy = toy_slice:SLICE\n")
    environment = {**os.environ, "PYTHONPATH": str(wheel)}

    def ddprof(*arguments: str) -> str:
        line = [sys.executable, "-m", "ddprof", *arguments]
        done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "\n  toy         Write a toy trace.\n" in ddprof("--help")
    assert ddprof("toy", "trace.toy", "--steps", "5") == "wrote trace.toy\n"
    report = json.loads(ddprof("analyze", "trace.toy", "--format", "json"))
    assert report["run"]["world_size"] == 1 and report["steps"]["count"] == 5
    assert report["ledger"]["job"]["compute"] == 8000
