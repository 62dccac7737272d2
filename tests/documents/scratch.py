"""A folder as a reader has it who followed the pages; programs of a cluster or a forge are stand-ins."""

import os
import re
import shutil
import subprocess
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from snippets import ROOT, blocks

CALLS = "calls.txt"
_ONE_RANK = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # as a scheduler says it
_ALONE = re.compile(r"-- python train\w*\.py")
PATIENCE_S = 600  # of a machine that does ten other things; nothing here is a measurement
STILL_S = 120  # in which processes that use less of a CPU than IDLE_SHARE stand still
IDLE_SHARE = 0.05  # torchrun looks after its ranks ten times a second, which takes a fifth of this

# What comes after these programs' own words is a command that they start.
WRAPPING = ("docker", "srun", "mpirun", "horovodrun", "nsys", "accelerate", "deepspeed")
ALONE = ("ssh", "sbatch", "kubectl", "gcloud", "aws", "ray", "chromium", "make", "pip")

_RECORD = f'#!/bin/bash\necho "$(basename "$0") $*" >>"$SCRATCH/{CALLS}"\n'
# The first word that starts something is where the wrapped command begins; a script, with or without python before it,
# gets two ranks.
_WRAP = f"""{_RECORD}
while (($#)); do
  case "$1 $2" in "python "*.py) shift ;; esac
  case $1 in
    ddprof|python|torchrun|bash) exec "$@" ;;
    *.py) exec torchrun --nproc-per-node=2 "$@" ;;
  esac
  shift
done
"""
_FORKED = f'#!/bin/bash\nexec {sys.executable} {ROOT}/tests/capture/scripts/forked_ranks.py 2 "${{@: -1}}"\n'
_NO_JOB = _RECORD  # the job ends at once, in order
_TRAINS = "*train*.py*|*torch.distributed.run*"
_PYTHON = f'#!/bin/bash\ncase "$*" in {_TRAINS}) exit 0 ;; *) exec {sys.executable} "$@" ;; esac\n'
# Nothing is installed: what is asked for has to be a package of this name, with extras that it has.
_PIP = f"""{_RECORD}
for word; do
  case $word in
    install|-e|torch|.) ;;
    ddprof|ddprof\\[*|.\\[*) "$REAL_PYTHON" "$SCRATCH/extras.py" "$word" || exit 1 ;;
    *) echo "pip stand-in: what is $word?" >&2; exit 1 ;;
  esac
done
"""
_MAKE = _RECORD + f'exec {shutil.which("make") or "make"} --dry-run --directory {ROOT} "$@" >/dev/null\n'
_EXTRAS = """
import sys
KNOWN = {known!r}
asked = sys.argv[1].partition("[")[2].strip("]").split(",")
sys.exit(str([name for name in asked if name and name not in KNOWN]) if set(asked) - KNOWN - {{""}} else 0)
"""


@dataclass(frozen=True)
class Ended:
    """End of a command line: exit code and output."""

    code: str
    said: str


@dataclass(frozen=True)
class Scratch:
    """The folder, and how things are run in it."""

    folder: Path
    environment: dict[str, str]

    def run(self, line: str, *, programs: str = "bin") -> Ended:
        """Run one line in the folder, with the stand-ins of `programs`.

        `bin`; `nojob`: jobs end at once; `forked`: ranks share an import of torch.
        """
        path = f"{self.folder / programs}:{self.folder / 'bin'}:{self.environment['PATH']}"
        environment = self.environment | {"PATH": path} | (_ONE_RANK if _ALONE.search(line) else {})
        try:
            ended = _ended(line, self.folder, environment)
            if ended is None:
                warnings.warn(f"did not end, and is run once again: {line}", stacklevel=2)
                ended = _ended(line, self.folder, environment)
        finally:
            self.restore()
        assert ended is not None, f"did not end, twice: {line}"
        return ended

    def restore(self) -> None:
        """The script as it was, and `latest` leads to the recorded run again."""
        (self.folder / "train.py").write_text(quick_start_script(), encoding="utf-8")
        latest = self.folder / "ddprof-runs" / "latest"
        latest.unlink(missing_ok=True)
        latest.symlink_to("recorded")


def _ended(line: str, folder: Path, environment: dict[str, str]) -> Ended | None:
    """The end of a line; None where it stood still, or for PATIENCE_S did not end, and was killed: torch may wait for
    ever as a rank ends (keep_process_groups in capture/scripts/forked_ranks.py).
    """
    process = psutil.Popen(
        ["bash", "-c", line], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    used_s = 0.0
    for _ in range(PATIENCE_S // STILL_S):
        with suppress(subprocess.TimeoutExpired):
            said, _ = process.communicate(timeout=STILL_S)
            return Ended(str(process.returncode), said)
        before_s, used_s = used_s, sum(map(_used_s, _tree(process)))
        if abs(used_s - before_s) < IDLE_SHARE * STILL_S:
            break
    for one in reversed(_tree(process)):
        with suppress(psutil.Error):
            one.kill()
    process.communicate()
    return None


def _tree(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return [process, *process.children(recursive=True)]
    return [process]


def _used_s(process: psutil.Process) -> float:
    with suppress(psutil.Error):
        return float(sum(process.cpu_times()[:2]))
    return 0.0


def quick_start_script() -> str:
    """`train.py` of the quick start."""
    (script,) = blocks(ROOT / "docs" / "quick-start.md", "python")
    return script


def stand_in(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    (folder / name).chmod(0o755)


def made(folder: Path, extras: set[str]) -> Scratch:
    """The folder with the quick start's script and the stand-ins; nothing is recorded yet."""
    for name in ("train.py", "train_ray.py"):
        (folder / name).write_text(quick_start_script(), encoding="utf-8")
    (folder / "job").mkdir()
    stand_in(folder / "job", "start.sh", "#!/bin/bash\ncd .. && exec torchrun --nproc-per-node=2 train.py\n")
    for place in ("docs", "workloads", "benchmarks", "sample_traces", "analyzers"):
        (folder / place).symlink_to(ROOT / place)
    (folder / "extras.py").write_text(_EXTRAS.format(known=extras), encoding="utf-8")
    for name in WRAPPING:
        stand_in(folder / "bin", name, _WRAP)
    for name in ALONE:
        stand_in(folder / "bin", name, {"make": _MAKE, "pip": _PIP}.get(name, _RECORD))
    for name in (*WRAPPING, "torchrun", "start.sh"):
        stand_in(folder / "nojob", name, _NO_JOB)
    stand_in(folder / "forked", "torchrun", _FORKED)
    stand_in(folder / "nojob", "python", _PYTHON)
    ours = ("DDPROF_", "PYTHONPATH", "WANDB", "MLFLOW")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {"PATH": f"{Path(sys.executable).parent}:{environment['PATH']}", "REAL_PYTHON": sys.executable}
    environment |= {"SCRATCH": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    environment |= {"DDPROF_DATA_HOME": str(folder / "data"), "WANDB_MODE": "offline"}
    environment |= {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/runs.db"}
    return Scratch(folder, environment)


def fresh(line: str, number: int) -> str:
    """The line with a run folder of its own, which has to be new."""
    return re.sub(r"--run-dir (\S+)", rf"--run-dir new/\1-{number}", line)
