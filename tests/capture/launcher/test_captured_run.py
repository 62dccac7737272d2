"""The job runs whatever becomes of the launcher's own work, its exit code is returned, and a signal arrives once."""

import itertools
import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from damage import DAMAGES, DEAD, SIDECAR, STEM, ring
from runs import bare_run, ddprof_run

from ddprof.capture.files.layout import host_label
from ddprof.capture.files.storage import read_object, write_json
from ddprof.capture.launcher import captured_run
from ddprof.capture.launcher.captured_run import CapturedRun, RunOptions
from ddprof.capture.launcher.launch import run_child

FILES = (".sidecar.json", ".ring", ".workers.jsonl", ".0.pt.trace.json.gz", ".fr.json", ".sidecar.json.9.tmp")
OTHERS = ("control.json", "manifest.json", f"host.{host_label()}.{DEAD}.counters.jsonl", "manifest.h.7.json")


def options(folder: Path, mode: str = "monitor", **given: Any) -> RunOptions:
    chosen = {"out": str(folder), "name": "t", "run_dir": folder, "skip": 5, "steps": 5, "every": 0, "ranks": "all"}
    return RunOptions(**chosen | {"mode": mode} | given)


def returned(folder: Path, command: list[str], **given: Any) -> int:
    run = CapturedRun(options(folder, **given), command)
    code = run_child(command, run.environment, run.tick)
    run.end(code)
    return code


NAMES = [*(STEM + suffix for suffix in FILES), *OTHERS]
IN_TURN = [(name, list(DAMAGES)[at % 5 :: 5]) for at, name in enumerate(NAMES)]  # all files and all damages
REST = [(name, [kind for kind in DAMAGES if kind not in kinds]) for name, kinds in IN_TURN]


@pytest.mark.parametrize(("name", "kinds"), [*IN_TURN, *(pytest.param(*each, marks=pytest.mark.slow) for each in REST)])
def test_every_damaged_file(tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, kinds: list[str]) -> None:
    for kind in kinds:
        damage = DAMAGES[kind]
        prepared, folder = tmp_path / f"{kind}.prepared", tmp_path / kind
        prepared.mkdir()
        folder.mkdir()
        for whole in NAMES:  # everything that a job may have left
            write_json(prepared / whole, SIDECAR)
        (prepared / f"{STEM}.ring").unlink()
        ring(prepared / f"{STEM}.ring")
        damage(prepared / name)
        code = returned(folder, ["sh", "-c", 'cp -a "$0"/. "$1"; exit 7', str(prepared), str(folder)])
        err = capfd.readouterr().err
        assert code == 7 and "Error:" not in err, (kind, err)  # one guard, and nothing that it had to catch
        manifest, ranks = read_object(folder / "manifest.json"), [0] * os.path.lexists(folder / f"{STEM}.sidecar.json")
        assert (manifest["exit_code"], manifest["ranks"]) == (7, ranks)
        shutil.rmtree(folder)


CHORES = ("salvage", "summarize", "read_topology", "write_json", "RunUpload.end", "manifest.end")
ERRORS = (RuntimeError("no\nluck"), OSError(28, "No space left on device"), KeyboardInterrupt())


@pytest.mark.parametrize(("chore", "error"), list(itertools.product(CHORES, ERRORS)))
def test_a_chore_that_fails_costs_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, chore: str, error: BaseException
) -> None:
    run = CapturedRun(options(tmp_path / "run", out=f"file://{tmp_path}/store"), ["true"])
    monkeypatch.setattr(f"{captured_run.__name__}.{chore}", Mock(side_effect=error))
    run.end(3)
    err = capfd.readouterr().err.splitlines()
    assert all(line.startswith("ddprof: ") for line in err)
    assert sum("; " in line and ("Error: " in line or "interrupted" in line) for line in err) == 1, err


@pytest.mark.parametrize("content", [b"", b"{}", b"DDPROFR2" + b"\0" * 9000, b"DDPROFR2" + b"\xff" * 200_000])
def test_a_ring_that_is_none_does_not_end_the_watching(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "run"
    run = CapturedRun(options(folder), ["true"])
    ring(folder / f"rank0.h.{DEAD}.0.ring")
    (folder / f"rank1.h.{DEAD}.0.ring").write_bytes(content)
    assert run.tick is not None
    for _ in range(3):
        run.tick()
    assert list(folder.glob("host.*.counters.jsonl"))


@pytest.mark.parametrize("tick", ["raises", "hangs"])
def test_watching_that_fails_or_hangs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], tick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Signals are forwarded meanwhile, the job is awaited, its code returned."""
    monkeypatch.setattr("ddprof.capture.launcher.launch._LAST_TICK_S", 0.1)
    calls, over, ready, waiting = [], threading.Event(), tmp_path / "ready", threading.get_ident()

    def on_tick() -> None:
        calls.append(1)
        if tick == "raises":
            raise KeyError("rank")
        over.wait()

    def signal_once_both_are_there() -> None:
        while not (calls and ready.exists()):
            time.sleep(0.01)
        signal.pthread_kill(waiting, signal.SIGUSR1)  # any other thread of a test process dies of it, and all with it

    child = f"trap 'exit 5' USR1; touch {ready}; while :; do sleep 0.05; done"
    threading.Thread(target=signal_once_both_are_there).start()
    assert run_child(["sh", "-c", child], os.environ, on_tick) == 5
    over.set()  # only now
    assert len(calls) == 1 and capfd.readouterr().err.count("watching the job: KeyError") == (tick == "raises")


@pytest.mark.parametrize("kind", ["missing", "no program", "folder", "link to itself"])
def test_a_command_that_cannot_be_started(tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str) -> None:
    path = tmp_path / "program"
    if kind != "missing":
        path.write_text("not a program")
        path.chmod(0o755)
        DAMAGES.get(kind, Path.exists)(path)
    assert run_child([str(path)], os.environ) == (127 if kind == "missing" else 126)
    assert capfd.readouterr().err.startswith(f"ddprof: {path} was not started: ")


@pytest.mark.parametrize("command", [["sh", "-c", "rm -rf $0; exit 9"], ["sh", "-c", "rm -rf $0; touch $0; exit 9"]])
def test_a_run_folder_that_is_gone(tmp_path: Path, capfd: pytest.CaptureFixture[str], command: list[str]) -> None:
    assert returned(tmp_path / "run", [*command, str(tmp_path / "run")], mode="trace") == 9
    err = capfd.readouterr().err.splitlines()
    assert err[-1] == f"ddprof: no capture: {tmp_path / 'run'} is gone, full or read-only" and len(err) == 2


def test_a_full_disk_is_named(tmp_path: Path) -> None:
    """Files of more than no bytes cannot be written: the job's own limit is as it was."""
    code = (
        "import resource, signal, sys, ddprof.cli.main as m\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))\n"
        "sys.argv = ['ddprof', 'run', '--run-dir', sys.argv[1], '--', 'sh', '-c', 'exit 11']\n"
        "m.main()\n"
    )
    done = bare_run([sys.executable, "-c", code, str(tmp_path / "run")])
    assert done.returncode == 11, done.stderr
    assert "manifest.json: OSError: [Errno 27] File too large; nothing says how the run ended" in done.stderr
    assert done.stderr.splitlines()[-1] == f"ddprof: no capture: {tmp_path / 'run'} is gone, full or read-only"


@pytest.mark.parametrize("where", ["2>/dev/full", "2>&-", ">&- 2>&-", ">/dev/full"])
def test_streams_that_cannot_be_written(tmp_path: Path, where: str) -> None:
    for module in ("ddprof.cli.run", "ddprof.cli.main run"):
        line = f"{sys.executable} -m {module} --out {tmp_path} -- sh -c 'exit 4' {where}"
        assert bare_run(["sh", "-c", line]).returncode == 4, module


def test_a_reader_who_has_left(tmp_path: Path) -> None:
    ours = f"{sys.executable} -m ddprof.cli.run --out {tmp_path}"
    line = f"exec 3>&1; ({ours} -- sh -c 'sleep 0.5; exit 4'; echo $? >&3) 2>&1 | true"
    assert bare_run(["sh", "-c", line]).stdout == "4\n"


@pytest.mark.parametrize(("option", "said"), [("-I", "ignores PYTHONPATH"), ("-S", "leaves out sitecustomize")])
def test_a_python_that_capture_cannot_reach(tmp_path: Path, option: str, said: str) -> None:
    run = ddprof_run(tmp_path, ["python3", option, "-c", "import sys; sys.exit(6)"])
    assert run.code == 6 and f"no capture: python {option} {said}" in run.output


RUN_CHILD = """
import os, sys
from ddprof.capture.launcher.launch import run_child
sys.exit(run_child(sys.argv[1:], os.environ))
"""
LAUNCHER = [sys.executable, "-c", RUN_CHILD]
SIGNALLED = """
import signal, time
ended = []
signal.signal(signal.SIGINT, lambda *_: print(1, flush=True))
[signal.signal(each, lambda *_: (print(2, flush=True), ended.append(time.monotonic()))) for each in (15, 1)]
print("ready", flush=True)
while not ended or time.monotonic() < ended[0] + 0.3:  # one that comes twice comes within milliseconds
    time.sleep(0.01)
"""


def test_a_launcher_that_is_held_and_resumed_still_waits_for_its_job() -> None:
    command = [*LAUNCHER, "sh", "-c", "echo started; sleep 2; exit 7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(1.0)  # longer than the launcher waits at a time
        os.kill(process.pid, signal.SIGCONT)
        assert (process.wait(300), process.stderr.read()) == (7, b"")


@pytest.mark.parametrize("to", ["group", "launcher", "terminal"])  # whose end its session's leader hears of alone
def test_a_signal_to_the_group_to_the_launcher_or_of_the_terminal_arrives_once(to: str) -> None:
    ours, theirs = pty.openpty()
    command = ["sh", "-c", f'exec "$@" <{os.ttyname(theirs)}', "sh", *LAUNCHER, sys.executable, "-c", SIGNALLED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        send = os.killpg if to == "group" else os.kill
        os.write(ours, b"\x03") if to == "terminal" else send(process.pid, signal.SIGINT)
        assert process.stdout.readline() == "1\n"
        os.close(ours) if to == "terminal" else send(process.pid, signal.SIGTERM)
        assert (process.stdout.read(), process.wait(60)) == ("2\n", 0)
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the witness has gone with it
