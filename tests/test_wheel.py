"""Contents of the wheel: it is complete, and works without the rest of this checkout."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MAPPED = ("analyzers", "dashboard", "workloads", "sample_traces")
SOURCES = {"ddprof": "ddprof"} | {name: f"ddprof/{name}" for name in MAPPED}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):  # the build leaves folders behind, and must not find old ones
        if (ROOT / name).is_file():
            (checkout / name).parent.mkdir(parents=True, exist_ok=True)
            (checkout / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(checkout)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel, which sees the dependencies of this one."""
    home = tmp_path_factory.mktemp("home") / "env"
    venv.create(home, with_pip=False)
    (packages,) = home.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return home / "bin"


def run(programs: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`ddprof WORDS` in the environment, away from the checkout."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "DDPROF_SHIM")}
    command = [str(programs / "python"), "-m", "ddprof.cli.main", *words]
    return subprocess.run(command, cwd=programs.parent, env=environment, capture_output=True, text=True, check=False)


def test_everything_that_is_no_source_is_in_it_and_one_file_serves_every_python(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"{target}/{file.relative_to(ROOT / top).as_posix()}"
        for top, target in SOURCES.items()
        for pattern in ("*.css", "*.js", "*.toml", "*.txt", "*.pyi", "precision.json", "truth.json", "py.typed")
        for file in (ROOT / top).rglob(pattern)
    }
    assert len(wanted) > 20 and sorted(wanted - names) == []
    sources = {name for name in names if name.endswith(".py")}
    assert len(sources) > 500 and not any(name.startswith(("tests/", "benchmarks/")) for name in names)
    # The stable ABI where there is a compiler, else no compiled part at all.
    compiled = [name for name in names if name.endswith((".so", ".pyd"))]
    assert "-cp310-abi3-" in wheel.name if compiled else wheel.name.endswith("-none-any.whl")
    assert all(".abi3." in name for name in compiled)


def test_it_is_what_runs_and_gives_a_verdict(installed: Path) -> None:
    where = subprocess.run(
        [str(installed / "python"), "-c", "import ddprof, ddprof.analyzers; print(ddprof.__file__)"],
        cwd=installed.parent, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert str(installed.parent) in where
    demo, page = run(installed, "demo"), installed.parent / "demo.html"
    assert demo.returncode == 0 and "Findings" in demo.stdout, demo.stderr
    assert run(installed, "demo", "-o", str(page)).returncode == 0 and "</html>" in page.read_text(encoding="utf-8")
    assert "compiled parts" in run(installed, "doctor", "--python", "/no/such/python").stdout
