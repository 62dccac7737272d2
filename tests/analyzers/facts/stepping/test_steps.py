"""Steps of a rank: those that are marked, by whomever and wherever, else those that repeat."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import retold
from corpus import SCENARIOS
from labelled_runs import Labelled, Runs
from retold import Events

from ddprof.analyzers.facts.stepping.steps import find_steps
from ddprof.readers import Source, read

NAMES = ("clean.ddp", "clean.fsdp", "clean.pp", "host.gc", "input.starved", "comm.slow_link")


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_one_another(labelled: Runs, name: str) -> None:
    for facts in labelled(name).job.ranks:
        assert facts.step_source == "profiler_step"
        assert facts.steps["index"].tolist() == [SCENARIOS[name].first_step + i for i in range(SCENARIOS[name].steps)]
        assert (facts.steps["start_ns"][1:] == facts.steps["end_ns"][:-1]).all()


@pytest.mark.parametrize("number", ["9" * 20, "9" * 6000])
def test_a_mark_whose_number_no_counter_reaches_is_a_step_all_the_same(tmp_path: Path, number: str) -> None:
    mark = {"ph": "X", "cat": "user_annotation", "pid": 1, "tid": 1, "dur": 100}
    marks = [{**mark, "name": f"ProfilerStep#{name}", "ts": 100 * at} for at, name in enumerate(("7", number, "9"))]
    (tmp_path / "t.json").write_text(json.dumps(marks))
    steps, *_ = find_steps(read(Source(str(tmp_path / "t.json"), "kineto")))
    assert steps["index"].tolist() == [7, 8, 9]


def told(labelled: Runs, folder: Path, change: Callable[[Events], None]) -> Labelled:
    return retold.told(labelled("clean.ddp"), folder, retold.each(change))


def assert_steps(labelled: Runs, run: Labelled, source: str, rel: float = 0.02) -> None:
    assert {facts.step_source for facts in run.job.ranks} == {source} and run.report.steps.count == 3
    assert run.report.steps.wall_us == pytest.approx(labelled("clean.ddp").report.steps.wall_us, rel=rel)


def without_marks(events: Events) -> None:
    """Neither marks of steps nor ranges of training: operators, calls and kernels alone."""
    events[:] = [e for e in events if e.get("cat") not in ("user_annotation", "gpu_user_annotation")]


def test_steps_without_marks_are_found_by_what_the_device_repeats_whole(labelled: Runs, tmp_path: Path) -> None:
    run = told(labelled, tmp_path, without_marks)
    assert_steps(labelled, run, "inferred")
    assert any("found by what repeats" in item.effect for item in run.report.health)

    def cut(events: Events) -> None:
        without_marks(events)
        timed = [float(e["ts"]) for e in events if "dur" in e]
        limit = min(timed) + 0.8 * (max(timed) - min(timed))
        events[:] = [e for e in events if "dur" not in e or float(e["ts"]) < limit]

    assert told(labelled, tmp_path / "cut", cut).report.steps.count == 1


@pytest.mark.parametrize("name", ["train_step", "step {}", "epoch_0_batch_{}", "## iteration {} ##", "Training Step"])
def test_marks_of_the_scripts_own_are_steps(labelled: Runs, tmp_path: Path, name: str) -> None:
    def renamed(events: Events) -> None:
        marks = [e for e in events if retold.is_mark(e)]
        without_marks(events)
        events += marks
        for number, mark in enumerate(marks):
            mark["name"] = name.format(number)
            inside = {**mark, "name": f"micro_batch {number}", "dur": mark["dur"] / 2}
            events += [inside, {**mark, "name": "optimizer_step_hook", "dur": 10.0}]

    assert_steps(labelled, told(labelled, tmp_path, renamed), "annotation")


@pytest.mark.parametrize("with_host", [True, False])
def test_marks_on_the_device_alone_are_steps(labelled: Runs, tmp_path: Path, with_host: bool) -> None:
    def device_side(events: Events) -> None:
        kept = (*retold.DEVICE, *(("cuda_runtime", "cpu_op") if with_host else ()))
        events[:] = [e for e in events if "dur" not in e or e["cat"] in kept]

    assert_steps(labelled, told(labelled, tmp_path, device_side), "profiler_step", rel=0.05)


@pytest.mark.parametrize("name", ["clean.pp", "clean.ddp", "clean.fsdp"])
def test_with_device_marks_alone_what_the_host_launches_first_is_of_the_step_that_follows(
    labelled: Runs, tmp_path: Path, name: str
) -> None:
    """A later stage of a pipeline receives on a stream without marks before it computes on the one that has them."""

    @retold.each
    def device_marks(events: Events) -> None:
        marks = [e for e in events if e.get("cat") == "gpu_user_annotation" and e["name"].startswith("ProfilerStep")]
        without_marks(events)
        events += marks

    run = retold.told(labelled(name), tmp_path, device_marks)
    assert {facts.step_source for facts in run.job.ranks} == {"profiler_step"}
    assert run.report.replay.error < 0.01
    for one, other in zip(labelled(name).job.ranks, run.job.ranks, strict=True):
        assert one.steps["index"].tolist() == other.steps["index"].tolist()
        assert other.steps["start_ns"] / 1e6 == pytest.approx(one.steps["start_ns"] / 1e6, abs=0.5)


def test_ranges_of_micro_batches_are_told_from_steps_by_the_optimizer(labelled: Runs, tmp_path: Path) -> None:
    def accumulated(events: Events) -> None:
        marks = [e for e in events if retold.is_mark(e)]
        without_marks(events)
        for mark in marks:
            part = mark["dur"] / 4
            events.extend({**mark, "name": f"batch {i}", "ts": mark["ts"] + i * part, "dur": part} for i in range(3))
            events.append({**mark, "name": "Optimizer.step#SGD.step", "ts": mark["ts"] + 3 * part, "dur": part})

    run = told(labelled, tmp_path, accumulated)
    assert {facts.step_source for facts in run.job.ranks} == {"annotation"} and run.report.steps.count == 3
