"""Install the built wheel as a user does, once by itself and once with each extra, each into a new environment; try it.

    python .ci/try_extras.py [EXTRA...] [--dist FOLDER]

Builds sdist and wheel into dist/ unless FOLDER (default `dist`) has them. `pip install` takes $PIP_CONSTRAINT like
any other pip; without it torch is held to the version of the Makefile, because an extra that brings torch must not
fetch another one. Each environment is removed again. A line for each says how long pip and the trial took;
ends with 1 where one failed. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
TRACES = ROOT / "sample_traces" / "starved_loader" / "traces"
PLAIN, SOURCE = "(none)", "(sdist)"
DEMO = "ddprof demo"

# What a person who asked for the extra does first. TRACES is a shipped sample, and `python` that of the environment.
SERVED = """
import re, subprocess, sys, urllib.request
told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
server = subprocess.Popen(["ddprof", "serve", sys.argv[1], "--port", "0"], **told)
try:
    link = next(match[0] for line in server.stdout if (match := re.search(r"http://\\S+", line)))
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())  # the token becomes a cookie
    assert b"ddprof" in browser.open(link, timeout=60).read()
finally:
    server.terminate()
    server.wait()
"""
ASKED = """
import anyio, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def ask():
    async with stdio_client(StdioServerParameters(command="ddprof", args=["mcp", sys.argv[1]])) as (read, write):
        async with ClientSession(read, write) as session:
            await session.initialize()
            assert len((await session.list_tools()).tools) > 3
anyio.run(ask)
"""
SCRIPT = "from torch.utils.data import DataLoader\n\nloader = DataLoader(list(range(9)), batch_size=2)\n"
FIXES = 'schema = "ddprof.fixes/1"\n\n[[fix]]\nat = "train.py:3"\nset = { num_workers = 4 }\n'
TRIALS = {
    "fast": 'python -c "import isal" && ddprof demo',
    "mcp": "python asked.py TRACES",
    "nvtx": "python -c \"import nvtx; nvtx.annotate('step')\" && ddprof demo",
    "dashboard": "python served.py TRACES && ddprof report TRACES -o report.html",
    "patch": "ddprof patch FIXES.toml -o fix.patch && grep num_workers=4 fix.patch",
    "dask": "ddprof analyze TRACES --engine dask --no-cache",
    "s3": "export AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b; "
    "ddprof analyze s3://none/run; test $? = 4",
    "wandb": "WANDB_MODE=offline ddprof report TRACES --to wandb && ls wandb/offline-run-*",
    "mlflow": "MLFLOW_TRACKING_URI=sqlite:///runs.db ddprof report TRACES --to mlflow && test -s runs.db",
    "tensorboard": "ddprof report TRACES --to tensorboard && ls runs/*/events.*",
    "comet": "COMET_START_ONLINE=0 COMET_OFFLINE_DIRECTORY=comet ddprof report TRACES --to comet && ls comet/*.zip",
    "docs": "mkdocs --version && ddprof demo",
    "frameworks": 'python -c "import transformers, accelerate, lightning, megatron.core" && ddprof demo',
    "dev": "pytest --version && ruff --version && ddprof demo",
}


def extras() -> list[str]:
    """All of pyproject.toml, in its order."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return list(project["optional-dependencies"])


def built(dist: Path) -> tuple[Path, Path]:
    """The wheel and the sdist, made where they are not there."""
    if not list(dist.glob("*.whl")):
        with tempfile.TemporaryDirectory() as tools:
            subprocess.run([sys.executable, "-m", "venv", tools], check=True)
            subprocess.run([f"{tools}/bin/pip", "install", "--quiet", "build"], check=True, stderr=subprocess.DEVNULL)
            command = [f"{tools}/bin/python", "-m", "build", "--outdir", str(dist), str(ROOT)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next(dist.glob("*.whl")), next(dist.glob("*.tar.gz"))


def told(command: str, folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a line of shell; yields the end of what it said where it failed."""
    done = subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, text=True, capture_output=True, check=False
    )
    if done.returncode:
        yield f"{command}\nended with {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"


def tried(extra: str, file: Path) -> tuple[str, list[str]]:
    """(a line on the extra, what failed)."""
    with tempfile.TemporaryDirectory(prefix="ddprof-extra-") as name:
        folder = Path(name)
        began, cpu = time.monotonic(), spent_cpu_s()
        subprocess.run([sys.executable, "-m", "venv", str(folder / "env")], check=True)
        for named, text in {
            "served.py": SERVED, "asked.py": ASKED, "train.py": SCRIPT, "FIXES.toml": FIXES, "held.txt": f"{torch()}\n",
        }.items():  # fmt: skip
            (folder / named).write_text(text, encoding="utf-8")
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("DDPROF", "PYTHONPATH"))}
        environment |= {"PATH": f"{folder / 'env' / 'bin'}:{environment['PATH']}", "DS_BUILD_OPS": "0"}
        environment |= {"XDG_CACHE_HOME": str(folder / "cache"), "DDPROF_DATA_HOME": str(folder / "data")}
        environment.setdefault("PIP_CONSTRAINT", str(folder / "held.txt"))
        asked = str(file) if extra in (PLAIN, SOURCE) else f"{file}[{extra}]"
        failed = list(told(f"pip install --quiet '{asked}' && pip check", folder, environment))
        installed = time.monotonic()
        shutil.copytree(TRACES, folder / "traces")
        trial = TRIALS.get(extra, DEMO).replace("TRACES", "traces")
        failed += [] if failed else told(trial, folder, environment)
        ended, cpu = time.monotonic(), spent_cpu_s() - cpu
        line = f"{extra:12} environment and pip {installed - began:5.1f} s, trial {ended - installed:5.1f} s"
        line += f", CPU {cpu:5.1f} s"
        return f"{line}  {'FAILED' if failed else 'works'}", failed


def spent_cpu_s() -> float:
    """CPU seconds of the commands so far, as wall time includes other work of the machine."""
    times = os.times()
    return times.children_user + times.children_system


def torch() -> str:
    """The requirement of torch in the Makefile."""
    match = re.search(r"^TORCH \?= (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None
    return match[1]


def main() -> int:
    """0 where everything worked."""
    parser = argparse.ArgumentParser(description="Install the wheel with each extra, and try it.")
    parser.add_argument("extra", nargs="*", help="these alone; (none) and (sdist) are the package by itself")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist")
    options = parser.parse_args()
    wheel, source = built(options.dist)
    failures = 0
    for extra in options.extra or [PLAIN, SOURCE, *extras()]:
        line, failed = tried(extra, (source if extra == SOURCE else wheel).resolve())
        print(line, *failed, sep="\n", flush=True)
        failures += bool(failed)
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
