"""`ddprof report --to` and `ddprof run --log-to`: names of trackers, and what is sent, from the option to the file."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ddprof.errors import UsageError
from ddprof.slices.trackers import destination
from ddprof.slices.trackers.content import Content
from ddprof.slices.trackers.destination import TRACKERS, Target, parse_targets

needs_tensorboard = pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
# Trains until the tracker's folder holds a number that was logged meanwhile; prints the trackers in this process.
SCRIPT = """
import sys, time
from pathlib import Path
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
folder, until, steps = Path(sys.argv[1]), time.monotonic() + 240, 0
def is_logged():
    return any(b"ddprof/live/step_ms" in file.read_bytes() for file in folder.rglob("events*"))
while time.monotonic() < until and (steps < 25 or not is_logged()):
    optimizer.zero_grad()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
    time.sleep(0.01)
    steps += 1
imported = {name.split(".")[0] for name in sys.modules}
print("imported:", sorted(imported & {"wandb", "mlflow", "tensorboard", "comet_ml"}))
sys.exit(3)
"""


def logged(folder: Path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder))
    read.Reload()
    return read


def test_names_and_places_and_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(destination, "find_spec", lambda name: find_spec("ddprof"))
    wanted = [Target("wandb"), Target("mlflow", "vision"), Target("tensorboard", "/a:b")]
    assert parse_targets("--to", ["wandb", "mlflow:vision", "tensorboard:/a:b"]) == wanted
    for given, says in ((["wndb"], "wandb"), (["comet", "comet:x"], "twice")):
        with pytest.raises(UsageError, match=says):
            parse_targets("--to", given)


def test_no_tracker_is_imported_before_one_is_written_to() -> None:
    libraries = {package for package, _ in TRACKERS.values()}
    modules = "ddprof, ddprof.api, ddprof.cli.main, ddprof.cli.run, ddprof.cli.report, ddprof.slices.trackers.follow"
    lines = f"import sys, {modules}; print(sorted({libraries!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("tracker", TRACKERS)
def test_without_a_library_the_extra_is_named(ddprof, monkeypatch, tmp_path: Path, tracker: str) -> None:
    monkeypatch.setattr(destination, "find_spec", lambda _: None)
    run = ("run", "--out", str(tmp_path / "runs"), "--log-to", tracker, "--", "true")
    for words in (("report", str(tmp_path), "--to", tracker), run):
        code, out, err = ddprof(*words)
        assert (code, out, err.count("\n")) == (2, "", 1) and f"pip install 'ddprof[{tracker}]'" in err
    assert not (tmp_path / "runs").exists()


@needs_tensorboard
def test_a_report_stays_redacted_and_is_written_where_a_tracker_takes_none(ddprof, saved: Path, tmp_path: Path) -> None:
    file = tmp_path / "r.html"
    words = ["report", str(saved), "-o", str(file), "--to"]
    code, _, err = ddprof(*words, f"tensorboard:{tmp_path / 'tb'}")
    assert code == 0 and f"wrote {file}" in err and "tensorboard --logdir" in err, err
    (folder,) = (tmp_path / "tb").iterdir()
    assert logged(folder).Scalars("ddprof/step_ms")[0].value == 100
    assert (folder / "ddprof-report.html").read_bytes() == file.read_bytes()
    saved.write_text(saved.read_text().replace('"mnist"', '"secretproject"'))
    assert ddprof(*words, f"tensorboard:{tmp_path / 'hidden'}", "--redact")[0] == 0
    files = [file for file in (tmp_path / "hidden").rglob("*") if file.is_file()]
    assert len(files) == 2
    for one in files:
        assert "secretproject" not in str(one)
        assert b"secretproject" not in one.read_bytes() and str(tmp_path).encode() not in one.read_bytes()
    file.unlink()
    (tmp_path / "none").write_text("no folder")
    code, _, err = ddprof(*words, f"tensorboard:{tmp_path}/none")
    assert code == 1 and "tensorboard: not written: " in err and "Traceback" not in err and file.exists()


@needs_tensorboard
@pytest.mark.torch
def test_a_job_is_logged_while_it_runs_and_judged_when_it_has_ended(tmp_path: Path) -> None:
    logs = tmp_path / "tb"
    options = ["--out", str(tmp_path / "runs"), "--log-to", f"tensorboard:{logs}"]
    line = [sys.executable, "-m", "ddprof.cli.run", *options, "--", sys.executable, "-c", SCRIPT, str(logs)]
    environment = {**os.environ, "DDPROF_LOG_PERIOD_S": "0.2", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "imported: []\n"), done.stderr  # the job's own
    assert "tensorboard: " in done.stderr
    (folder,) = logs.iterdir()
    assert folder.name == f"ddprof-{(tmp_path / 'runs' / 'latest').resolve().name}"
    read = logged(folder)
    assert read.Scalars("ddprof/live/rank/0/step_ms")[0].value > 0
    assert read.Scalars("ddprof/rank/0/step_ms")[0].value > 0 and read.Tensors("ddprof/verdict")
    assert "<!doctype html>" in (folder / "ddprof-report.html").read_text(encoding="utf-8")


@needs_tensorboard
def test_a_job_without_a_trace_says_so_to_the_tracker(tmp_path: Path) -> None:
    options = ["--out", str(tmp_path / "runs"), "--log-to", f"tensorboard:{tmp_path / 'tb'}"]
    line = [sys.executable, "-m", "ddprof.cli.run", *options, "--", "true"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "no verdict for the trackers" in done.stderr


@needs_tensorboard
def test_numbers_sentences_and_the_file(content: Content, send, tmp_path: Path) -> None:
    live = Content({"ddprof/live/step_ms": 90.0})
    failed, told = send(Target("tensorboard", str(tmp_path / "tb")), "mnist", (live, 10), (content, 20))
    folder = tmp_path / "tb" / "ddprof-mnist"
    assert failed == [] and len(told) == 1 and f"tensorboard --logdir {tmp_path / 'tb'}" in told[0]
    read = logged(folder)
    assert [(e.step, e.value) for e in read.Scalars("ddprof/live/step_ms")] == [(10, 90.0)]
    for key, value in content.numbers.items():
        assert [(e.step, e.value) for e in read.Scalars(key)] == [(20, pytest.approx(value))]
    (verdict,) = read.Tensors("ddprof/verdict")
    assert verdict.tensor_proto.string_val[0].decode() == content.words["ddprof/verdict"]
    assert read.Tensors("ddprof/report")[0].tensor_proto.string_val[0].decode() == content.markdown
    assert (folder / "ddprof-report.html").read_text() == "<!doctype html><title>the report</title>"


@needs_tensorboard
def test_it_writes_for_vertex_ai(content: Content, send, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIP_TENSORBOARD_LOG_DIR", str(tmp_path / "vertex"))
    for place, folder in (("", tmp_path / "vertex"), (str(tmp_path / "own"), tmp_path / "own")):
        assert send(Target("tensorboard", place), "mnist", (content, 0))[0] == []
        assert list(folder.glob("ddprof-mnist/events.out.tfevents.*"))
