"""Whatever happens to a job happens as without ddprof, what was captured stays readable, and its secrets secret."""

import base64
import gzip
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from damage import STEM, ring
from planted_secrets import KINDS
from runs import SCRIPTS, TIMEOUT_S, Captured, bare_run, cli, ddprof_run, forked, good_run, script, started, wait_until

from ddprof.capture.files.storage import read_object
from ddprof.capture.launcher.salvage import salvage
from ddprof.slices.assistants.answers import Allowed, Answers

pytestmark = pytest.mark.torch


def incident(tmp_path: Path, name: str, rank: int = 1) -> Captured:
    """A job of which the last rank meets with something in step 8."""
    run = ddprof_run(tmp_path, forked("loop.py", "--incident", name, "--rank", str(rank), ranks=rank + 1))
    assert run.code == int(name != "profiler"), run.output
    assert not list(run.folder.glob("*.tmp"))
    return run


def test_the_scripts_own_profiler_wins(tmp_path: Path) -> None:
    run = incident(tmp_path, "profiler")
    assert "finished 14" in run.output
    (events,) = [line for line in run.output.splitlines() if line.startswith("user events")]
    assert int(events.split()[-1]) > 100
    first, second = run.sidecars
    assert [side["windows"][0]["last_step"] for side in (first, second)] == [9, 8]
    assert any("own profiler" in note for note in second["notes"]) and len(second["steps"]) == 14


PROFILED = """
import json, sys, torch
from torch.profiler import ProfilerActivity, profile
opt = torch.optim.SGD((net := torch.nn.Sequential(torch.nn.Linear(4, 4))).parameters(), 0.1)
with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as profiler:
    for _ in range(12): net(torch.randn(2, 4)).sum().backward(), opt.step()
profiler.export_chrome_trace(sys.argv[1])
events = json.load(open(sys.argv[1]))["traceEvents"]
print("modules", sum("nn.Module: Linear" in event.get("name", "") for event in events))
"""


def test_a_profiler_of_the_script_sees_its_modules_from_the_first_step_on(tmp_path: Path) -> None:
    """torch's tracer knows a module's call by the code of nn.Module.__call__, and reads the module's parameters."""
    run = ddprof_run(tmp_path / "run", [sys.executable, "-c", PROFILED, str(tmp_path / "own.json")])
    assert run.code == 0 and "modules 12\n" in run.output, run.output


ENDS = {"exception": (1, 1, "exit"), "SIGTERM": (0, -15, "signal"), "exit": (0, 7, "exit"), "replaced": (0, 7, "exit")}


@pytest.mark.parametrize("name", ENDS)
def test_an_early_end_loses_no_step_and_no_open_window(tmp_path: Path, name: str) -> None:
    rank, code, state = ENDS[name]
    run = incident(tmp_path, name, rank)
    assert f"rank {rank} ended: {code}\n" in run.output
    assert ("the script's own defect" in run.output) == (name == "exception")
    assert sorted(run.traces) == list(range(rank + 1)) and run.sidecars[rank]["state"] == state
    assert [len(sidecar["steps"]) for sidecar in run.sidecars] == [8] * (rank + 1)


def test_death_without_warning_keeps_the_steps(tmp_path: Path) -> None:
    run = incident(tmp_path, "SIGKILL")
    assert "rank 1 ended: -9" in run.output
    survivor, victim = run.sidecars
    assert 0 in run.traces and victim["state"] == "killed"
    assert [step["index"] for step in victim["steps"]] == list(range(8))
    assert all(step["backward_ns"] > 0 for step in victim["steps"])
    assert survivor["state"] in ("exit", "signal", "watchdog") and not list(run.folder.glob("*.ring"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("exception", 1), ("SIGTERM", -15), ("exit", 7), ("SIGKILL", -9)])
def test_torchrun_says_how_its_rank_ended(tmp_path: Path, name: str, code: int) -> None:
    run = ddprof_run(tmp_path, script("loop.py", "--incident", name))
    assert run.code == 1 and re.search(rf"exitcode\W+{code}\b", run.output), run.output
    assert len(run.sidecars) == 2 and len(run.sidecars[1]["steps"]) == 8


@pytest.mark.parametrize("launcher", [forked, pytest.param(script, marks=pytest.mark.slow)], ids=["forked", "torchrun"])
def test_hang_ends_by_signal_with_both_traces(tmp_path: Path, launcher: Callable[..., list[str]]) -> None:
    """`ddprof stop` finds nobody at a step boundary: the recorders are kept, the job is not touched."""
    job = started(cli("--out", str(tmp_path), "--name", "t", "--", *launcher("loop.py", "--incident", "hang")))
    assert job.stdout is not None and any("hanging" in text for text in job.stdout)
    folder = (tmp_path / "latest").resolve()
    assert bare_run([sys.executable, "-m", "ddprof.cli.main", "stop", str(folder)]).returncode == 0

    def hung() -> list[Path]:
        return [path for path in folder.glob("rank?.*.fr.json") if path.name.count(".") == 5]

    wait_until(lambda: len(hung()) == 2)
    assert any(not entry["retired"] for entry in json.loads(min(hung()).read_text())["entries"])
    assert job.poll() is None
    os.kill(job.pid, signal.SIGTERM)
    output = job.stdout.read()
    run = Captured(job.wait(TIMEOUT_S), output, folder)
    assert "2 traces of 2 ranks" in output, output
    assert [len(sidecar["steps"]) for sidecar in run.sidecars] == [8, 8]
    assert len(list(run.folder.glob("rank0.*.fr.json"))) == 2  # the window's, and that of the hang
    # What torchrun itself ends with on SIGTERM: an error, or seldom an abort as it closes the store its ranks left.
    assert run.code in (1, 128 + signal.SIGABRT), output


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk that the files of two ranks fill as they start."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a small tmpfs here (needs root)")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk(small: Path) -> None:
    """The files of the job under way give way to what says how it ended."""
    run = good_run(small, forked("loop.py"))
    assert "finished 14" in run.output, run.output
    assert not run.traces
    for sidecar in run.sidecars:
        assert any("free on the disk" in note for note in sidecar["notes"]), sidecar["notes"]
        assert (sidecar["state"], len(sidecar["steps"])) == ("exit", 14)
    assert len(run.sidecars) == 2 and not list(run.folder.glob("*.ring"))


def test_steps_of_a_killed_rank_are_kept_on_a_full_disk(small: Path) -> None:
    ring(small / f"{STEM}.ring")
    with pytest.raises(OSError), (small / "of others").open("wb", buffering=0) as others:
        while others.write(bytes(4096)):
            pass
    assert len(salvage(small)) == 1
    kept = read_object(small / f"{STEM}.sidecar.json")
    assert (kept["state"], [step["index"] for step in kept["steps"]]) == ("killed", list(range(20)))
    assert not (small / f"{STEM}.ring").exists()


def test_folder_that_cannot_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    run = ddprof_run(blocked / "runs", forked("loop.py", "--steps", "3", ranks=1), TMPDIR=str(tmp_path))
    assert run.code == 0 and "finished 3" in run.output, run.output
    assert "cannot be written (Not a directory): writing to" in run.output, run.output
    private = tmp_path / f"ddprof-{os.getuid()}"
    folders = [path for path in private.iterdir() if not path.is_symlink()]
    assert len(folders) == 1, (sorted(map(str, private.rglob("*"))), run.output)
    assert len(list(folders[0].glob("*.sidecar.json"))) == 1, run.output


@pytest.mark.parametrize("before", ["torch", "glob"])
def test_folder_that_disappears_while_the_job_runs(tmp_path: Path, before: str) -> None:
    one = tmp_path / "one.py"
    one.write_text(
        f"import {before}, shutil, sys, glob\n"
        f"[shutil.rmtree(p) for p in glob.glob({str(tmp_path / 'runs')!r} + '/2*')]\n"
        "sys.argv = ['loop.py', '--steps', '9']\n"
        f"exec(open({str(SCRIPTS / 'loop.py')!r}).read())\n"
    )
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    run = ddprof_run(tmp_path / "runs", [sys.executable, str(one)], **rank)
    assert run.code == 0 and "finished 9" in run.output, run.output
    assert run.output.count("nothing can be written") == 1
    assert run.output.count("is gone, full or read-only") == 1 and "Traceback" not in run.output


CODES = {"sh -c 'exit 3'": 3, "sh -c 'kill -TERM $$'": 143, "sh -c 'kill -KILL $$'": 137, "/nonexistent/program": 127}


@pytest.mark.parametrize("line", CODES)
def test_exit_codes_are_those_of_a_shell(tmp_path: Path, line: str) -> None:
    assert ddprof_run(tmp_path, shlex.split(line)).code == CODES[line]


def test_forty_kinds_of_secrets_are_nowhere(tmp_path: Path, ddprof: Callable[..., tuple[int, str, str]]) -> None:
    kinds = tmp_path / "kinds.json"
    kinds.write_text(json.dumps(list(KINDS)))
    command = ["python", str(SCRIPTS / "secretive.py"), str(kinds), *KINDS, "--password", "nextword43"]
    options = ("--name", "hf_plantedHuggingvalue32", "--skip", "1", "--steps", "4")
    run = ddprof_run(tmp_path / "out", command, *options, NCCL_AUTH_TOKEN="envvalue44", NCCL_NOTE=next(iter(KINDS)))
    assert run.code == 1 and len(run.sidecars) == 1, run.output
    said = "\n".join(line for line in run.output.splitlines() if line.startswith("ddprof:"))
    tools = Answers(Allowed.of([str(run.folder)]))
    told = {"said": said, "mcp": "".join(f(str(run.folder)) for f in (tools.verdict, tools.hang))}
    page, tables = tmp_path / "r.html", tmp_path / "csv"
    asked = ["analyze --no-cache", "analyze --format json", "analyze --format markdown", "hang", "hang --json"]
    for line in (*asked, f"report -o {page}", f"export --to csv -o {tables}"):
        command, *words = line.split()
        told[line] = "".join(map(str, ddprof(command, str(run.folder), *words)))
    written = [page, *(path for path in (*run.folder.iterdir(), *tables.iterdir()) if path.is_file())]
    told |= {path.name: _text(path) for path in written}
    secrets = {*(part for text, part in KINDS.items() if " " not in part), "inthesource42", "nextword43", "envvalue44"}
    assert [(name, secret) for name, text in told.items() for secret in secrets if secret in text] == []
    assert {path.stat().st_mode & 0o777 for path in (run.folder, *run.folder.iterdir())} == {0o700, 0o600}


def _text(path: Path) -> str:
    """Content of a file, unpacked."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8", "replace")
    for word in re.findall(r"[A-Za-z0-9+/]{40,}={0,2}", text):
        with suppress(ValueError, OSError, EOFError):
            plain = base64.b64decode(word, validate=True)
            text += (gzip.decompress(plain) if plain[:2] == b"\x1f\x8b" else plain).decode("utf-8", "replace")
    return text
