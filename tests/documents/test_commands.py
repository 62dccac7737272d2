"""Command lines of README and docs, and examples that need a run, as a reader would run them; slow where it trains or
asks a store or a cluster. Names of the pages are filled with those of these tests' scratch folder.
"""

import importlib.util
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import click
import pyarrow.parquet
import pytest
from inprocess import call, can
from ports import free_port
from scratch import Ended, Scratch, fresh
from snippets import PAGES, ROOT, blocks, command_lines, python

from ddprof.cli.main import cli

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
    (r"-o x\.html", "-o report.html"),
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
    "python -m benchmarks.strangers run --seed 314159 --count 15 --rounds 2": _BENCHMARK,
    "python -m benchmarks.peers": _BENCHMARK,
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
    """True for a line with a store, cluster, tracker, pytest or all of doctor: seconds each, others test the parts."""
    return re.search(r"s3://|dask|--to wandb|^pytest |^ddprof doctor( --python|$)", line) is not None


def has_to_train(line: str) -> bool:
    """True where the line's output is useless unless the job really runs."""
    return re.search(r"\bddprof (tune|verify) .*-- *\S", line) is not None


def shape(line: str) -> tuple[str, ...]:
    """Features that distinguish one `ddprof run` line from another while its job does nothing: options and launcher."""
    before, _, job = line.partition(" -- ")
    return (*sorted({word.split("=")[0] for word in before.split() if word.startswith("-")}), job.split()[0])


PAGE_OF = {line: page.name for page in reversed(PAGES) for line in command_lines(page)}
LINES = [line for line in PAGE_OF if line not in NOT_RUN]
_GATE = re.compile(r"^\| `ddprof ([^`]+)` \| (\d) \| (.*?) ?\|$", re.MULTILINE)
GATES = _GATE.findall((ROOT / "docs" / "ci.md").read_text(encoding="utf-8"))
_NEEDED = {"wandb": r"--to wandb", "mlflow": r"--to.* mlflow", "tensorboard": r"tensorboard", "distributed": r"dask"}
_SERVES = re.compile("ddprof serve (?!--help)")
Run = Callable[[str], Ended]
There = Callable[[str, str], Ended]


def names_a_command(line: str) -> str | None:
    """`ddprof COMMAND --help` for a line that leaves out what the command asks for, and so only names it; else None."""
    words = shlex.split(line)
    if words[0] != "ddprof":
        return None
    cut = line.endswith((" --", "..."))
    words = [word for word in words[1:] if not (cut and word in ("--", "..."))]
    context: click.Context = click.Context(cli, resilient_parsing=True)
    command: click.Command = cli
    named = ["ddprof"]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        named.append(words.pop(0))
        found = command.get_command(context, named[-1])
        assert found is not None, f"there is no command {named[-1]!r}"
        command, context = found, click.Context(found, resilient_parsing=True)
    try:
        with command.make_context(named[-1], list(words)):
            pass
    except click.NoSuchOption as error:
        raise AssertionError(error.format_message()) from error
    except (click.MissingParameter, click.BadOptionUsage, click.exceptions.NoArgsIsHelpError):
        return shlex.join([*named, "--help"])
    except (click.exceptions.Exit, click.UsageError):
        pass
    return shlex.join([*named, "--help"]) if cut else None


@pytest.fixture
def here(scratch: Scratch) -> Run:
    return lambda line: call(line, scratch)


@pytest.fixture(scope="module")
def known() -> dict[str, Ended]:
    """Ends of commands so far: what two pages name is run once."""
    return {}


@pytest.fixture
def there(request: pytest.FixtureRequest) -> There:
    """Runs a line by a shell, beside the store or the cluster that it names."""

    def run(line: str, programs: str) -> Ended:
        scratch: Scratch = request.getfixturevalue("stored" if "s3://" in line else "scratch")
        if found := re.search(r"(?<=dask://)(HOST:PORT|scheduler:8786)", line):
            line = line.replace(found[0], request.getfixturevalue("scheduler"))
        return scratch.run(fresh(line, abs(hash((line, programs)))), programs=programs)

    return run


def judge(line: str, ended: Ended) -> None:
    """It ended as it should, and not by a defect."""
    assert ended.code in ends(line) and "Traceback" not in ended.said, f"{line}\n-> {ended.code}\n{ended.said[-3000:]}"


def skip_without_library(line: str) -> None:
    """Skips where the extra that the line needs is not installed."""
    for library, pattern in _NEEDED.items():
        if re.search(pattern, line) and importlib.util.find_spec(library) is None:
            pytest.skip(f"{library} is not installed")


HERE = [line for line in LINES if not has_to_train(filled(line)) and not takes_long(filled(line))]
TRAINING = [line for line in LINES if trains(filled(line)) and not names_a_command(filled(line))]
RUNS = [line for line in HERE if line in TRAINING and filled(line).startswith("ddprof run ")]
ALIKE = set(RUNS) - set({shape(filled(line)): line for line in reversed(RUNS)}.values())
FAST: list[Any] = [line for line in HERE if line not in ALIKE]  # those alike are run for real, in the slow tests
ELSEWHERE = [pytest.param(line, marks=pytest.mark.slow) for line in LINES if takes_long(filled(line))]


@pytest.mark.torch
@pytest.mark.parametrize("line", FAST + ELSEWHERE, ids=lambda line: f"{PAGE_OF[line]}: {line}")
def test_a_documented_command_line_runs(line: str, here: Run, there: There, known: dict[str, Ended]) -> None:
    """Its job is a stand-in."""
    skip_without_library(line)
    command = filled(line)
    command = names_a_command(command) or command
    if command not in known:
        if takes_long(command) or not can(command):
            known[command] = there(command, "nojob")
        else:
            known[command] = here(command + " --port 0" * bool(_SERVES.match(command)))
        if known[command].code == "2" and re.fullmatch(r"ddprof( [a-z]+)+", command):  # the page names it alone
            known[command] = here(f"{command} --help")
    judge(command, known[command])
    assert not _SERVES.match(command) or "http://" in known[command].said


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("line", TRAINING, ids=lambda line: f"{PAGE_OF[line]}: {line}")
def test_a_documented_job_is_run_and_recorded(line: str, there: There) -> None:
    skip_without_library(line)
    ended = there(filled(line), "bin")
    judge(line, ended)
    assert re.search(r"\d traces? of \d ranks?|^(KEEP|NOTHING|UNDECIDED|outcome)", ended.said, re.MULTILINE), ended.said


@pytest.mark.parametrize(("command", "code", "words"), GATES, ids=[row[0] for row in GATES])
def test_a_gate_ends_as_the_page_says(command: str, code: str, words: str, here: Run) -> None:
    ended = here(f"ddprof {command} --no-cache")
    assert ended.code == code and words in ended.said, ended.said


def test_the_tables_of_gates_and_of_what_is_not_run_are_of_the_documents() -> None:
    assert len(GATES) >= 5 and {code for _, code, _ in GATES} == {"0", "3"}
    assert sorted(set(NOT_RUN) - set(PAGE_OF)) == []


def test_every_line_has_a_command_and_options_that_there_are() -> None:
    """Also lines that are never run, or only by slow tests."""
    parts = [part.strip() for line in PAGE_OF for part in re.split(r"[;|]|&&", filled(line))]
    lines = [part for part in parts if re.match(r"ddprof [a-z]", part) and not part.count('"') % 2]
    assert len(lines) > 150
    for line in lines:
        names_a_command(line)


def test_a_command_line_that_is_new_and_wrong_is_found(here: Run) -> None:
    for words, line in (("no command", "ddprof analyse run"), ("--nosuch", "ddprof analyze run --nosuch")):
        with pytest.raises(AssertionError, match=words):
            names_a_command(line)
    with pytest.raises(AssertionError, match="-> 4"):
        judge("ddprof analyze nowhere", here("ddprof analyze nowhere"))
    assert names_a_command("ddprof run --mode monitor") == "ddprof run --help"
    assert names_a_command("ddprof analyze run") is None


@pytest.mark.torch
def test_the_interface_as_it_is_shown(scratch: Scratch) -> None:
    (scratch.folder / "shown.py").write_text(python("api.md"), encoding="utf-8")
    ended = scratch.run("python shown.py")
    assert ended.code == "0" and "Every rank waits for its data loader" in ended.said, ended.said


@pytest.mark.torch
def test_the_exported_tables_are_read_as_it_is_shown(scratch: Scratch) -> None:
    """Each line by itself: a reader has one of these libraries; those that are not here are left out."""
    ended = scratch.run("ddprof export run --to parquet -o ddprof-parquet")
    assert ended.code == "0", ended.said
    lines = python("dashboard-pages.md").splitlines()
    assert len(lines) == 3
    for library, line in {line.partition(".")[0]: line for line in lines}.items():
        if importlib.util.find_spec(library):
            (scratch.folder / "shown.py").write_text(f"import {library}\nprint({line})\n", encoding="utf-8")
            ended = scratch.run("python shown.py")
            assert ended.code == "0" and ended.said.strip(), ended.said
    rows = pyarrow.parquet.read_table(scratch.folder / "ddprof-parquet" / "rank_causes.parquet")
    assert {"rank", "cause", "mean_us"} <= set(rows.column_names) and "rank_causes.parquet" in lines[0]


@pytest.mark.torch
@pytest.mark.slow  # two real jobs; tests/plugin asks the same of one
def test_the_gates_of_pytest_as_they_are_shown(scratch: Scratch) -> None:
    """The run of the scratch folder has a fault, so that the gates refuse it, each for what it says."""
    folder = scratch.folder / "gated"
    folder.mkdir(exist_ok=True)
    (folder / "ddprof-runs").symlink_to(scratch.folder / "ddprof-runs")
    (folder / "test_gate.py").write_text("import pytest\n\n" + python("ci.md"), encoding="utf-8")
    written = scratch.run("cd gated && pytest -p no:cacheprovider --rootdir=. --ddprof-update-baselines test_gate.py")
    assert (folder / "tests" / "baselines" / "small.json").is_file(), written.said
    ended = scratch.run("cd gated && pytest -p no:cacheprovider --rootdir=. test_gate.py")
    assert ended.code == "1" and "1 passed" in ended.said and "input.starved" in ended.said, ended.said


def test_an_assistant_is_told_a_server_that_starts(scratch: Scratch) -> None:
    (text,) = blocks(ROOT / "docs" / "assistants.md", "json")
    for server in json.loads(text)["mcpServers"].values():
        arguments = [word.replace("/path/to/", "") for word in server["args"]]
        assert scratch.run(" ".join([server["command"], *arguments])).code == "0"
