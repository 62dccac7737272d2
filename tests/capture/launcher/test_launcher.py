"""Ways to reach a job, its name on all nodes, its summary, what the killed leave, and what monitor mode asks for."""

import json
import os
import shlex
import venv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from damage import DAMAGES, DEAD, STEM, documents, ring
from runs import bare_run, captured_environment, without_own

from ddprof.capture.files.layout import CONTROL, host_label
from ddprof.capture.files.ring import StepRing
from ddprof.capture.files.step import Step
from ddprof.capture.files.storage import read_object, write_json
from ddprof.capture.launcher import manifest, pth, shim
from ddprof.capture.launcher.host.gpus import GpuWatch
from ddprof.capture.launcher.live import LiveRank, latest_late, read_ranks, request_window
from ddprof.capture.launcher.manifest import commit_of
from ddprof.capture.launcher.monitor import JobMonitor, Watcher, WindowBudget, WindowCost
from ddprof.capture.launcher.run_folder import SharedJob, job_of
from ddprof.capture.launcher.salvage import salvage
from ddprof.capture.launcher.shim import ENV_SHIM, SHIM, obstacle
from ddprof.capture.launcher.summary import summarize


def test_a_jobs_environment_gains_two_variables_and_its_code_lies_where_ddprof_is_installed(tmp_path: Path) -> None:
    before = {"HOME": "/h", "PYTHONPATH": "/mine"}
    after = captured_environment(tmp_path, before)
    assert {name for name in after if after.get(name) != before.get(name)} == {"PYTHONPATH", ENV_SHIM}
    first, settings, own = after["PYTHONPATH"].split(os.pathsep)
    assert (first, own) == (str(SHIM), "/mine") and not Path(settings).exists()
    assert Path(shim.__file__).parents[1] / "shim" == SHIM
    assert sorted(path.name for path in SHIM.iterdir() if path.suffix == ".py") == ["__init__.py", "sitecustomize.py"]
    captured_environment(tmp_path / "run", {})
    assert list(tmp_path.iterdir()) == []


def test_a_package_that_pythonpath_cannot_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shim, "SHIM", tmp_path / "sample:8")
    with pytest.raises(ValueError, match=r"PYTHONPATH cannot name .*sample:8"):
        captured_environment(tmp_path, {})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("python -I train.py", "python -I ignores PYTHONPATH"),
        ("/usr/bin/python3.11 -u -E -m train", "python -E ignores PYTHONPATH"),
        ("env A=1 python3 -X dev -W ignore -Im train", "python -I ignores PYTHONPATH"),
        ("bash -c 'cd job && python -S train.py'", "python -S leaves out sitecustomize"),
        *((line, None) for line in ("python train.py -I -E -S", "python -c 'import sys' -I", "mypython -I")),
        ("python -X importtime -Wignore -u train.py", None),
    ],
)
def test_options_that_keep_capture_out(line: str, said: str | None) -> None:
    found = obstacle(shlex.split(line))
    assert found is None if said is None else found is not None and found.startswith(said)


@without_own
def test_isolated_interpreters_are_reached_by_the_pth(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", symlinks=True)
    (site_packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    pth.install(site_packages)
    (site_packages / "sitecustomize.py").write_text("import sys; sys.own = sys.__dict__.get('own', 0) + 1\n")
    python = str(tmp_path / "venv" / "bin" / "python")
    settings = captured_environment(tmp_path / "run", {})[ENV_SHIM]
    code = "import sys; print(getattr(sys, '_ddprof_capture', None), sys.own)"

    def ask(option: str = "-I", **extra: str) -> str:
        done = bare_run([python, option, "-c", code], **extra)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    found = f"{settings.partition('/settings/')[2]} 1"  # and the user's own sitecustomize has run once
    assert ask(**{ENV_SHIM: settings}) == found and ask("-E", **{ENV_SHIM: settings}) == found
    assert ask("-u", **captured_environment(tmp_path / "run", {})) == found  # both ways in
    assert ask() == "None 1" and ask(**{ENV_SHIM: str(tmp_path / "gone/shim/settings/x")}) == "None 1"
    pth.remove(site_packages)
    assert ask(**{ENV_SHIM: settings}) == "None 1"


TORCHRUN = "torchrun --nnodes=2 --nproc-per-node=8"
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
POD = {"MASTER_ADDR": "my-job-worker-0", "MASTER_PORT": "23456", "WORLD_SIZE": "4", "RANK": "1"}
ACCELERATE = "accelerate launch --num_machines 2 --main_process_ip h --main_process_port 5 train.py"
CLUSTER = '{"cluster": {"workerpool0": ["a"], "workerpool1": ["b", "c"]}}'


@pytest.mark.parametrize(
    ("command", "environment", "job"),
    [
        *(("python train.py", {}, None), ("torchrun --standalone --nproc-per-node=8 train.py", {}, None)),
        (f"{TORCHRUN} --rdzv-id=job42 --rdzv-endpoint=a:29500 train.py", {}, SharedJob("rdzv-job42", 2, False)),
        (f"{TORCHRUN} --rdzv_id job42 train.py", {}, SharedJob("rdzv-job42", 2, False)),
        (f"{TORCHRUN} --rdzv-endpoint=node-0:29500 train.py", {}, SharedJob("at-node-0-29500", 2, False)),
        ("torchrun --nnodes=1:4 --rdzv-endpoint=h:1 train.py", {}, SharedJob("at-h-1", 4, False)),
        (f"{TORCHRUN} --master-addr 10.0.0.1 --node-rank 1 train.py", {}, SharedJob("at-10.0.0.1-29500", 2, False)),
        (f"{TORCHRUN} --rdzv-endpoint=localhost:29500 train.py", {}, None),
        ("torchrun --nproc-per-node=2 train.py --nnodes=2 --master-addr a", {}, None),  # the script's own
        ("torchrun train.py", {"PET_NNODES": "4", "PET_RDZV_ENDPOINT": "a:1"}, SharedJob("at-a-1", 4, False)),
        *((ACCELERATE, {}, SharedJob("at-h-5", 2, False)), ("python train.py", SLURM, SharedJob("slurm77.0", 2))),
        ("srun -n 8 python train.py", {**SLURM, "SLURM_STEP_NUM_TASKS": "1"}, None),
        ("python train.py", {"PMIX_NAMESPACE": "prte-1@2", "OMPI_COMM_WORLD_SIZE": "8"}, SharedJob("mpiprte-1-2", 8)),
        ("python train.py", POD, SharedJob("at-my-job-worker-0-23456", 4, False)),
        ("python train.py", {**POD, "WORLD_SIZE": "1"}, None),
        ("python train.py", {"TORCHELASTIC_RUN_ID": "id7", "WORLD_SIZE": "2"}, SharedJob("elastic-id7", 2, False)),
        ("train", {"SM_HOSTS": '["algo-1", "algo-2"]', "TRAINING_JOB_NAME": "j-1"}, SharedJob("sagemaker-j-1", 2)),
        ("train", {"SM_HOSTS": "x", "TRAINING_JOB_NAME": "j-1"}, SharedJob("sagemaker-j-1", None)),
        ("train", {"CLOUD_ML_JOB_ID": "5", "CLUSTER_SPEC": CLUSTER}, SharedJob("vertex-5", 3)),
    ],
)
def test_the_name_is_what_the_launcher_shares(command: str, environment: dict[str, str], job: SharedJob | None) -> None:
    assert job_of(command.split(), environment) == job


def test_time_outside_phases_is_taken_step_by_step(tmp_path: Path) -> None:
    phases = ("data_ns", "forward_ns", "backward_ns")
    steps = [{"start_ns": 100 * n, "end_ns": 100 * n + 30, phases[n % 3]: 29} for n in range(12)]
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "steps": steps})
    times = summarize(tmp_path).step_times[0]
    assert (times["step_ns"], times["data_ns"], times["rest_ns"]) == (30, 0, 1)


def test_the_overhead_is_that_of_the_rank_where_it_is_largest(tmp_path: Path) -> None:
    for rank, (bare, profiled, own) in enumerate(((100, 150, 5), (200, 210, 2))):
        ranges = {"bare_range_ns": [bare, 2 * bare], "profiled_range_ns": [bare, 2 * profiled]}
        overhead = {"bare_step_ns": bare, "profiled_step_ns": profiled, "own_ns_per_step": own, **ranges}
        write_json(tmp_path / f"rank{rank}.h.7.0.sidecar.json", {"rank": rank, "host": "h", "overhead": overhead})
    summary = summarize(tmp_path)
    assert [summary.overhead[name] for name in ("window_frac", "own_frac", "bare_step_ns")] == [0.5, 0.05, 200]
    assert "-50 to +200 % inside the trace window, by its few" in manifest.last_line(tmp_path, summary, None)


def test_every_field_of_a_sidecar_may_be_damaged_and_none_says_how_many_ranks_there_are(tmp_path: Path) -> None:
    """A note names the file and the effect, and the rank is not missing: its file's name says who it is."""
    path, damaged = tmp_path / "rank0.h.7.0.sidecar.json", 0
    for content in documents():
        path.unlink(missing_ok=True)  # a file system may flush one that is cut to nothing: a second beside other work
        path.write_bytes(content)
        summary = summarize(tmp_path)
        assert (summary.ranks, summary.hosts) == ((0,), {0: "h"})
        json.dumps(summary.overhead | summary.step_times, allow_nan=False)
        if any(note.startswith(path.name) for note in summary.notes):
            damaged += 1
            assert "its steps, windows and overhead are not in this manifest (ranks 0)" in summary.notes[0]
    assert damaged > 100
    for rank, size in enumerate((4, 4, 4, 1 << 20, 1 << 21)):
        write_json(tmp_path / f"rank{rank}.h.7.0.sidecar.json", {"world_size": size})
    write_json(tmp_path / f"rank{1 << 40}.h.7.0.sidecar.json", {"world_size": 4})
    summary = summarize(tmp_path)
    assert (summary.world_size, summary.ranks) == (4, (0, 1, 2, 3, 4)) and len(summary.notes) == 1
    assert summary.notes[0].startswith("rank4.h.7.0.sidecar.json: damaged: ")


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_a_job_too_short_for_its_window_is_told_so(tmp_path: Path) -> None:
    write_json(tmp_path / "rank0.h.7.0.sidecar.json", {"rank": 0, "host": "h", "world_size": 1, "steps_total": 4})
    summary = summarize(tmp_path)
    assert "the job ended after 4 steps, before step 5" in manifest.last_line(tmp_path, summary, 5)
    assert "0 traces of 1 rank in" in manifest.last_line(tmp_path, summary, None)
    assert "no trace: no rank wrote one (see --ranks" in manifest.last_line(tmp_path, summary, 2)


def test_the_commit_of_a_branch_of_a_packed_one_of_none_and_of_a_worktree(tmp_path: Path) -> None:
    assert commit_of(tmp_path / "absent") is None or commit_of(tmp_path / "absent") == commit_of(tmp_path)
    git = tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_bytes(b"\xff\xfe\x00")
    assert commit_of(tmp_path) is None
    (tmp_path / "scripts").mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert commit_of(tmp_path) is None
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{COMMIT} refs/heads/main\n")
    assert commit_of(tmp_path / "scripts") == COMMIT
    (git / "refs" / "heads" / "main").write_text("f" * 40 + "\n")
    assert commit_of(tmp_path) == "f" * 40
    (git / "HEAD").write_text(f"{COMMIT}\n")
    assert commit_of(tmp_path) == COMMIT
    own = git / "worktrees" / "w"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/w\n")
    (own / "commondir").write_text("../..\n")
    (git / "refs" / "heads" / "w").write_text(f"{COMMIT}\n")
    (tmp_path / "scripts" / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of(tmp_path / "scripts") == COMMIT


def test_salvage_completes_a_killed_rank(tmp_path: Path) -> None:
    stem = f"rank1.{host_label()}.{DEAD}.0"
    write_json(tmp_path / f"{stem}.sidecar.json", {"state": "running", "rank": 1, "steps": [{"index": 0}], "notes": []})
    ring(tmp_path / f"{stem}.ring", rank=1)
    for packed in ("", ".gz"):  # killed while it packed its trace
        (tmp_path / f"{stem}.0.pt.trace.json{packed}").write_text("{}")
    (tmp_path / f"{stem}.sidecar.json.{DEAD}.tmp").write_text('{"half":')
    notes, content = salvage(tmp_path), read_object(tmp_path / f"{stem}.sidecar.json")
    assert content["state"] == "killed" and [entry["index"] for entry in content["steps"]] == list(range(20))
    assert [window["trace_path"] for window in content["windows"]] == [f"{stem}.0.pt.trace.json"] and len(notes) == 2
    left = ("0.pt.trace.json", "0.pt.trace.json.gz", "sidecar.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{stem}.{name}" for name in left]


def test_salvage_leaves_running_ranks_and_other_hosts_alone(tmp_path: Path) -> None:
    alive = tmp_path / f"rank0.{host_label()}.{os.getpid()}.0.ring"
    elsewhere = tmp_path / "rank1.another-host.4194311.0.ring"
    for path in (alive, elsewhere):
        StepRing(path, {"rank": 0, "host": "h"}).close()
    assert salvage(tmp_path) == [] and sorted(tmp_path.iterdir()) == sorted([alive, elsewhere])


def test_every_field_of_a_killed_ranks_sidecar_may_be_damaged(tmp_path: Path) -> None:
    path = tmp_path / f"{STEM}.sidecar.json"
    for content in documents():
        ring(tmp_path / f"{STEM}.ring")
        path.unlink(missing_ok=True)  # a file system may flush one that is cut to nothing: a second beside other work
        path.write_bytes(content)
        assert all(note.startswith((f"{STEM}.", "rank 0 did not end normally")) for note in salvage(tmp_path))
        if b'"state": "running"' in content:
            saved = read_object(path)
            assert saved["state"] == "killed" and [s["index"] for s in saved["steps"]][-3:] == [17, 18, 19]


# What of a file is no reason to say anything.
UNHARMED = {
    ".ring": {"gone", "unreadable"},
    ".sidecar.json": {"gone", "unreadable", "link to nothing", "an empty object"},
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("which", UNHARMED)
def test_what_cannot_be_salvaged_is_said(tmp_path: Path, which: str, damage: str) -> None:
    write_json(tmp_path / f"{STEM}.sidecar.json", {"state": "running", "rank": 0})
    ring(tmp_path / f"{STEM}.ring")
    DAMAGES[damage](tmp_path / (STEM + which))
    (note, *_) = salvage(tmp_path) or ["nothing to say"]
    if (os.getuid() and damage == "unreadable") or damage not in UNHARMED[which]:
        assert note.startswith(f"{STEM}.")


MS = 1_000_000


def step(number: int, ms: float = 20, forward_ms: float = 5, profiled: bool = False) -> Step:
    start = number * 1000 * MS
    return Step(number, start, start + int(ms * MS), MS, int(forward_ms * MS), 8 * MS, MS, 0, 0, 0, 0, 0, 0, profiled)


def straggling(rank: int, number: int) -> Step:
    return step(number, 40, forward_ms=25 if rank == 1 else 5)


def ranks_at(until: int, make: Callable[[int, int], Step]) -> list[LiveRank]:
    """Two ranks that have just ended step `until`."""
    recent = range(max(0, until - 63), until + 1)
    return [LiveRank(rank, "h", tuple(make(rank, n) for n in recent), until + 1, MS) for rank in (0, 1)]


def asked(make: Callable[[int, int], Step], steps: int = 150) -> list[tuple[int, str]]:
    watcher = Watcher()
    answers = [(n, watcher.observe(ranks_at(n, make))) for n in range(5, steps, 5)]
    return [(n, reason) for n, reason in answers if reason]


def test_a_steady_job_its_warm_up_and_windows_are_left_alone() -> None:
    assert asked(lambda rank, n: step(n, 20 + (n * 7 % 5) * 0.4)) == []
    assert asked(lambda rank, n: step(n, 900 if n < 8 or n in (80, 81) else 20, profiled=n == 80)) == []


def test_an_outlier_and_a_lasting_slowdown_ask_once_and_a_straggler_is_named_with_its_phase() -> None:
    (answer,) = asked(lambda rank, n: step(n, 900 if n == 102 and rank == 1 else 20))
    assert answer == (105, "step 102 took 900 ms, 20 ms is usual")
    assert asked(lambda rank, n: step(n, 90 if n == 102 and rank == 1 else 20)) == []  # a window costs more
    every = asked(lambda rank, n: step(n, 900 if n % 40 == 2 else 20), 1200)
    assert [n for n, _ in every if n > 120] == []  # a checkpoint every forty steps is as it always was
    (answer,) = asked(lambda rank, n: step(n, 20 if n < 100 else 26), 220)
    assert "26 ms now, 20 ms before" in answer[1]

    (answer,) = asked(straggling)
    assert answer[1] == "rank 1 is late by 20 ms per step, in forward"
    late = latest_late(ranks_at(50, straggling))
    assert late is not None and (late.rank, late.phase) == (1, "forward")


def test_windows_are_bounded_in_an_hour_and_in_megabytes_a_day() -> None:
    budget = WindowBudget()
    asked_at = [second for second in range(0, 8 * 3600, 5) if budget.allows(1e6 + second, 0)]
    assert min(later - before for before, later in pairwise(asked_at)) >= 120 and len(asked_at) == 8 * 6
    budget, written = WindowBudget(), 0
    for minute in range(0, 2 * 24 * 60, 15):
        written += 40 << 20 if budget.allows(60.0 * minute, written) else 0
    assert written <= 2 * ((1 << 30) + (40 << 20))


def test_of_a_rank_that_was_restarted_the_newest_life_counts(tmp_path: Path) -> None:
    for pid, restart, steps, began_ns in ((9, 0, 500, MS), (7, 1, 40, 2 * MS), (8, 2, 3, 3 * MS)):
        about = {"rank": 0, "host": "h", "restart": restart, "started_ns": began_ns}
        ring = StepRing(tmp_path / f"rank0.h.{pid}.{restart}.ring", about)
        for number in range(steps):
            ring.write(step(number))
    assert [(rank.rank, rank.last_step) for rank in read_ranks(tmp_path)] == [(0, 2)]


def test_window_is_asked_for_ahead_of_every_rank(tmp_path: Path) -> None:
    first = request_window(tmp_path, ranks_at(100, lambda rank, n: step(n)), 5, "why")
    request = json.loads((tmp_path / "control.json").read_text())
    assert first == 100 + 2 + 75  # 1.5 s of 20 ms steps
    earlier = request.pop("id")
    assert request == {"action": "trace", "first_step": first, "steps": 5, "reason": "why", "before": []}
    request_window(tmp_path, [], 5, "again")
    assert json.loads((tmp_path / "control.json").read_text())["id"] == earlier + 1


def test_monitor_writes_counters_and_its_reason(tmp_path: Path) -> None:
    rings = [StepRing(tmp_path / f"rank{rank}.h.{rank}.0.ring", {"rank": rank, "host": "h"}) for rank in (0, 1)]
    monitor = JobMonitor(tmp_path, 5, leader=True, pid=7, gpus=GpuWatch(None))
    for number in range(100):
        for rank, its in enumerate(rings):
            its.write(straggling(rank, number))
        monitor.tick()
    assert len(monitor.reasons) == 1 and "rank 1 is late" in monitor.reasons[0]
    (log,) = tmp_path.glob("host.*.7.counters.jsonl")
    sample = json.loads(log.read_text().splitlines()[0])
    assert sample["cpu"]["jiffies"]["user"] > 0 and sample["memory"]["total_bytes"] > 2**20


EVERY, STEPS = 40, 5


def in_dear_windows(slowed: float) -> Callable[[int, int], Step]:
    """Windows every 40 steps, whose steps take longer on the last rank; the step after each takes long on both."""

    def make(rank: int, number: int) -> Step:
        is_traced = number % EVERY < STEPS
        took = 10 * (slowed if is_traced and rank == 1 else 1) + 300 * (number % EVERY == STEPS)
        return step(number, took, profiled=is_traced)

    return make


COSTS = {
    "within what is usual": (None, 1.1, []),
    "as usual: windows go on": (None, 1.9, [1, 2]),
    "as asked for: they end": (0.05, 1.1, [1, 2, 3]),
    "what is asked for is held": (0.05, 1.04, []),
}


@pytest.mark.parametrize("case", COSTS)
def test_each_window_that_is_too_dear_leaves_out_one_thing_more(case: str, tmp_path: Path) -> None:
    most, slowed, left_out = COSTS[case]
    cost, said = WindowCost(tmp_path, most), []
    for until in range(40, 400, 3):
        cost.look(ranks_at(until, in_dear_windows(slowed)))
        if (tmp_path / CONTROL).exists():
            request = json.loads((tmp_path / CONTROL).read_text())
            said += [request] if request not in said else []
    assert [request["steps"] for request in said] == left_out
    for before, request in enumerate(said):  # after the window that was too dear has ended, and before no rank's step
        assert request["action"] == "less" and request["first_step"] > 40 * (before + 1) + STEPS
        assert request["reason"].startswith(f"steps in a window took {100 * (slowed - 1):.0f} % longer")
