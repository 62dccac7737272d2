"""Substitutes for the documentation's command lines in these tests' scratch folder, and lines that are not run."""

import re

from ports import free_port

JOB = "torchrun --nproc-per-node=2 train.py"


# (what stands there, what it is here), in this order. Eight GPUs are two CPU ranks, as the quick start says.
NAMES = (
    (r"torchrun \.\.\.", JOB),
    (r"-- \.\.\.$", f"-- {JOB}"),
    (r"\bCOMMAND --help", "analyze --help"),
    (r"-- COMMAND\b", f"-- {JOB}"),
    (r"--params \.\.\. --gpu \.\.\. --world N\b", "--params 7e9 --layers 32 --hidden 4096 --gpu A100-40GB --world 8"),
    (r"SETTING=VALUE@LINE|KEY=VALUE", "num_workers=4"),
    (r"--only SETTING\b", "--only num_workers"),
    (r"LABELLED_DIR\.\.\. --precision FILE", "OUT --precision precision.json"),
    (r"--fixes FILE\b", "--fixes loader.toml"),
    (r"(?<!/)\bFIXES\.toml", "run/FIXES.toml"),
    (r"\$before\b|\bRUN\b(\.\.\.)?", "run"),
    (r"\bFOLDER\b(\.\.\.)?", "ddprof-runs"),
    (r"\bcompare A B\b", "compare run1 run2"),
    (r"\banalyze LOG\b", "analyze train.log"),
    (r"\bSNAPSHOT\b", "snapshot.pickle"),
    (r"\bdemo NAME\b", "demo sync"),
    (r"\bexplain ID\b", "explain input.starved"),
    (r"(?<=--finding )[a-z.]+", "input.starved"),  # all runs here are one, with this finding
    (r"\bhang PATH\b", "hang hung"),
    (r"/tmp/nccl_trace_rank_\*", "hung/nccl_trace_rank_*"),
    (r"PATH/TO/PYTHON", "python"),
    (r"(?<=[ =])/(shared/)?runs\b", r"mounted-runs"),
    (r"\$JOB_NAME\b", "my-job"),
    (r"\$HEAD:29500", lambda _: f"127.0.0.1:{free_port()}"),  # static rendezvous gives port 0 to the ranks
    (r"\$SLURM_NNODES\b", "1"),
    (r"--nnodes=\d+", "--nnodes=1"),
    (r"(--nproc-per-node=|-np |-n)8\b", r"\g<1>2"),
    (r"--ranks 0,7\b", "--ranks 0,1"),
    (r"--ranks sample:32\b", "--ranks sample:2"),
    (r"--ranks sample:33,417\b", "--ranks sample:2,1"),
    (r"--count \d+ --seed \d+", "--count 1 --seed 2"),
    (r"\bOUT/", "generated/"),
    (r"\bOUT\b", "generated"),
    (r"(?<=--max-steps) 20|(?<=train\.py):57", lambda found: " 20" if " " in found[0] else ":35"),
    (r"ddprof tune (?!--(yes|only))", "ddprof tune --yes --budget 60s "),
    (r"ddprof tune --only num_workers", "ddprof tune --only num_workers --yes --budget 60s"),
)

_FORGE = "needs the forge, or a key that it knows; the steps are those of .github/workflows/release.yml"
_NAME = "names a program's command; what it does is in a line of its own"
_BENCHMARK = "a measurement of up to an hour, alone on its machine; tests/bench runs its parts"
_HOROVOD = "fetches and builds Horovod's sources, minutes of compiling"
_RELEASE = "the name is on no index before the first release"
_ENVIRONMENT = "makes an environment; .ci/try_extras.py makes one for each extra, with the wheel"

# Command line as it stands in the document -> why no test runs it.
NOT_RUN = {
    **dict.fromkeys(("git apply", "docker run", "pip install", "nsys export", "ray start"), _NAME),
    **dict.fromkeys(("python -E", "python -I", "python -S", "python -m torch.distributed.run"), _NAME),
    "sbatch --export=NONE": _NAME,
    **dict.fromkeys(("python3 -m venv env", ". env/bin/activate", ". .venv/bin/activate"), _ENVIRONMENT),
    **dict.fromkeys((f"{runner} ddprof demo" for runner in ("pipx run", "uvx")), _RELEASE),
    "python .ci/licences.py": "writes a page of the checkout; tests/ci/test_supply.py judges the page",
    "python -m ddprof.capture.launcher.pth install": "writes to the environment of whoever runs it",
    'git tag --sign v0.1.0 --message "ddprof 0.1.0"': _FORGE,
    **dict.fromkeys(("git tag --verify v0.1.0", "git push origin v0.1.0"), _FORGE),
    "python -m benchmarks.strangers run --seed 9157 --count 22 --rounds 0": _BENCHMARK,
    "python -m benchmarks.gpu_scripts judge DIR": "wants recordings from a GPU; tests/bench has made ones",
    **dict.fromkeys(("python -m benchmarks.workload_pairs", "python -m benchmarks.workload_pairs --quick"), _BENCHMARK),
    "python -m benchmarks.workload_pairs --only gpt_fsdp2.slow-host --repeat 3": _BENCHMARK,
    "pip download --no-deps --no-binary :all: horovod==0.28.1 && tar xf horovod-0.28.1.tar.gz": _HOROVOD,
    "sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' horovod-0.28.1/CMakeLists.txt "
    "horovod-0.28.1/horovod/torch/CMakeLists.txt": _HOROVOD,
    "HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 "
    "pip install --no-build-isolation ./horovod-0.28.1": _HOROVOD,
}

# Exit codes other than 0 that a reader of the page expects, with why.
OTHER_ENDS = {
    r"--fail-on|--max-regression": ("0", "3"),  # a gate: the scratch run is one with a fault
    r"^ddprof (status|trigger|stop)\b": ("0", "4"),  # the recorded job has ended
    r"^ddprof tune$": ("0", "2"),  # the page names the command alone, and it wants a job
    r"^python -m benchmarks\.scoring": ("0", "3"),  # two scenarios are too few for the gates of precision
    r"^pytest ": ("0", "5"),  # no test is collected in the scratch folder
}


def filled(line: str) -> str:
    """The line with names of the scratch folder for those of the page."""
    for pattern, name in NAMES:
        line = re.sub(pattern, name, line)
    return line


def ends(line: str) -> tuple[str, ...]:
    """The exit codes that a filled line may end with."""
    return next((codes for pattern, codes in OTHER_ENDS.items() if re.search(pattern, line)), ("0",))


def trains(line: str) -> bool:
    """True where the line starts a training job, which takes a while."""
    return re.search(r"\bddprof (run|tune|verify) .*-- *\S", line) is not None


def takes_long(line: str) -> bool:
    """True for a line with a store, a cluster, a tracker or pytest: seconds each, and other tests hold the parts."""
    return re.search(r"s3://|dask|--to wandb|^pytest ", line) is not None


def has_to_train(line: str) -> bool:
    """True where the line's output is useless unless the job really runs."""
    return re.search(r"\bddprof (tune|verify) .*-- *\S", line) is not None


def shape(line: str) -> tuple[str, ...]:
    """Features that distinguish one `ddprof run` line from another while its job does nothing: options and launcher."""
    before, _, job = line.partition(" -- ")
    return (*sorted({word.split("=")[0] for word in before.split() if word.startswith("-")}), job.split()[0])
