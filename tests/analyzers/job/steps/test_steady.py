"""One-off work is in no average: start-up, the profiler's edges, one long event; recurring work is."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import retold
from captured import sidecar_of, timed_steps
from corpus import MODEL
from kineto_run import Script, in_step, loaded
from labelled_runs import Labelled, Runs, drawn, serious
from retold import Events

from benchmarks.oracle.small_runs import fault, small_run
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.kernels import with_steps
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.steps.steady import EMPTY_QUEUE, recurring, steady_steps
from ddprof.sidecar import Sidecar

STEP_US = 23_000.0  # about the step of clean.ddp, which has three
ONCE = {
    "a module loads": ("launch", 0, "loading code"),
    "the context is created": ("cudaFree", 0, "first allocations"),
    "another first call creates it": ("cudaHostRegister", 0, "creating contexts"),
    "the profiler starts": ("open", 0, "the start of the profiler"),
    "the profiler stops": ("close", 2, "the end of the profiler"),
}
SHORT, LATE_US, DEVICE_US = 20, 8_000.0, 20_000.0
USUAL_MS = 8.0
TRACED_MS = np.array([50.0, 7.0, 7.0, 7.0, 7.0])  # the first holds what is done now and then
IS_LEFT_OUT = np.array([True, False, False, False, False])


def told(labelled: Runs, folder: Path, *changes: retold.Change, name: str = "clean.ddp") -> Labelled:
    return retold.told(labelled(name), Path(tempfile.mkdtemp(dir=folder)), *changes)


def left_out(run: Labelled) -> list[int]:
    numbers = [step.number for step in run.job.left_out]
    first = min([*numbers, int(run.job.ranks[0].steps["index"][0])])
    return [number - first for number in numbers]


@pytest.mark.parametrize(
    ("cost", "length_us"),
    [
        pytest.param(cost, steps * STEP_US, marks=() if steps == 3 or not number else pytest.mark.slow)
        for number, cost in enumerate(ONCE)
        for steps in (0.4, 3, 200)
    ],
)
def test_a_step_whose_cost_occurs_once_is_left_out(labelled: Runs, tmp_path: Path, cost: str, length_us: float) -> None:
    where, step, words = ONCE[cost]
    run = told(labelled, tmp_path, retold.held_up(step, length_us, where))
    assert left_out(run) == [step] and words in run.job.left_out[0].why
    assert run.report.steps.wall_us == pytest.approx(labelled("clean.ddp").report.steps.wall_us, rel=0.02)
    assert run.report.steps.count == 2 and not serious(run.report)
    (note,) = [item for item in run.report.health if "not counted" in item.effect or "no other step" in item.effect]
    assert note.severity == "info" and words in note.issue


def test_steps_that_a_clock_set_back_puts_out_of_order_are_left_out_by_number(labelled: Runs, tmp_path: Path) -> None:
    facts = rank_facts(next(iter(told(labelled, tmp_path, retold.held_up(0, 3 * STEP_US, "launch")).recorded())))
    numbers = facts.steps["index"][::-1]
    ((kept,), (only,)) = steady_steps((replace(facts, steps=facts.steps.replace(index=numbers)),))
    assert only.number == numbers[0] and kept.steps["index"].tolist() == numbers[1:].tolist()


def test_start_up_profiler_edges_and_a_lone_pause_are_in_no_count(labelled: Runs, tmp_path: Path) -> None:
    changes = [retold.held_up(0, 9e5, "launch"), retold.held_up(0, 6e4, "open"), retold.held_up(2, 1e5, "close")]
    run = told(labelled, tmp_path, *changes)
    assert left_out(run) == [0, 2] and run.report.steps.count == 1
    run = told(labelled, tmp_path, retold.held_up(1, 30 * STEP_US, "cudaStreamSynchronize"))
    assert left_out(run)[0] in (0, 1) and 1 in left_out(run)
    assert run.report.steps.wall_us == pytest.approx(labelled("clean.ddp").report.steps.wall_us, rel=0.02)
    run, whole = told(labelled, tmp_path, retold.held_up(0, 9e5, "launch")), labelled("clean.ddp")
    assert run.measures.kernels_per_step.tolist() == whole.measures.kernels_per_step.tolist()
    assert run.measures.gemm_us == pytest.approx(whole.measures.gemm_us, rel=0.02)
    assert run.measures.optimizer_kernels.tolist() == whole.measures.optimizer_kernels.tolist()
    assert run.report.replay.error == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("where", ["launch", "cudaFree", "cudaMalloc"])
def test_a_cost_of_every_step_stays(labelled: Runs, tmp_path: Path, where: str) -> None:
    run = told(labelled, tmp_path, *(retold.held_up(step, 9e3, where) for step in range(3)))
    assert not run.job.left_out and run.report.steps.count == 3


@pytest.mark.parametrize(("length_us", "out"), [(1.5 * STEP_US, []), (2.5 * STEP_US, [1])])
def test_one_save_counts_unless_repeating_it_leaves_no_time(tmp_path: Path, length_us: float, out: list[int]) -> None:
    saves = small_run(fault("host.checkpoint", length_us, step=1), ranks=2, model=MODEL, loader_us=20_000.0, steps=5)
    run = drawn(saves, tmp_path)
    assert [number for number in left_out(run) if number == 1] == out
    assert (run.report.steps.wall_us < 1.1 * STEP_US) == bool(out)


@pytest.mark.parametrize(
    "name", ["host.checkpoint", "host.gc", "input.starved", "host.allocator", "straggler.imbalance"]
)
def test_what_recurs_or_may_recur_stays_in_the_average(labelled: Runs, name: str) -> None:
    assert not labelled(name).job.left_out


def test_what_every_second_step_has_stays_and_one_pause_of_all_does_not(labelled: Runs, tmp_path: Path) -> None:
    source = "straggler.imbalance"  # five steps
    run = told(labelled, tmp_path, *(retold.held_up(step, 9e3, "cudaMalloc") for step in (1, 3)), name=source)
    assert not [number for number in left_out(run) if number in (1, 3)]
    run = told(labelled, tmp_path, retold.held_up(2, 0.4 * STEP_US, "close"), name=source)
    assert 2 in left_out(run)
    assert "a pause of every rank's host" in next(step.why for step in run.job.left_out if "pause" in step.why)
    twice = [retold.held_up(step, 0.4 * STEP_US, "close") for step in (1, 3)]
    assert not told(labelled, tmp_path, *twice, name=source).job.left_out


def test_a_host_that_falls_behind_in_the_last_step_does_not_pause(tmp_path: Path) -> None:
    """It ran ahead of the device before: many short gaps, and the end of the profiler that explains few of them."""

    def work(script: Script, rank: int, step: int) -> None:
        for _ in range(30):
            script.launch(dur_us=50.0)
            script.idle(200.0 if step == 2 else 0.0)

    made = loaded(in_step(2, 3, work), tmp_path)
    (only,) = made.job.left_out
    assert only.why == "mostly idle while the host issues work too slowly"
    assert "if step" in made.report.verdict.headline and "recurs" in made.report.verdict.headline


def test_a_long_step_names_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    def work(script: Script, rank: int, step: int) -> None:
        for _ in range(30):
            script.launch(dur_us=50.0)
            script.idle(200.0 if step == 2 and rank == 1 else 0.0)

    (only,) = loaded(in_step(2, 3, work), tmp_path).job.left_out
    assert only.why == "mostly waiting for rank 1"


def opening(facts: RankFacts, earlier_ns: int, step: int = 0) -> RankFacts:
    """A rank one of whose steps begins that much earlier, as where its recording opened before its peers'."""
    by = np.zeros(len(facts.steps), np.int64)
    by[step] = earlier_ns
    moved = {name: facts.steps[name] - by for name in ("start_ns", "mark_ns")}
    return replace(facts, steps=facts.steps.replace(**moved))


def test_a_first_step_that_ranks_began_apart_is_left_out_and_lateness_all_along_is_not(labelled: Runs) -> None:
    job = labelled("straggler.imbalance").job
    usual = job.step_ns
    for earlier, expected in ((0, []), (usual // 100, []), (usual // 5, [0]), (2 * usual, [0])):
        ranks = [opening(f, earlier if p % 2 else 0) for p, f in enumerate(job.ranks)]
        kept, told = steady_steps(ranks, job.clock)
        assert [step.number - int(ranks[0].steps["index"][0]) for step in told] == expected
        assert len(kept[0].steps) == len(ranks[0].steps) - len(expected)
        assert all("ranks started recording" in step.why for step in told)
    starts = [f.steps["start_ns"] + p * 2_000_000 for p, f in enumerate(job.ranks)]
    late = [replace(f, steps=f.steps.replace(start_ns=start)) for f, start in zip(job.ranks, starts, strict=True)]
    assert steady_steps(late, job.clock)[1] == ()
    unknown = replace(job.clock, domains={name: replace(d, error_ns=None) for name, d in job.clock.domains.items()})
    assert steady_steps([opening(f, p * 9_000_000) for p, f in enumerate(job.ranks)], unknown)[1] == ()


def with_slow_beginning(folder: Path, is_ahead: bool) -> list[RankFacts]:
    """Two ranks whose hosts are slow for 8 ms of each step and ahead of 20 ms of kernels, or slow in the first step
    alone and never ahead, as they wait for their kernels."""

    def work(script: Script, rank: int, step: int) -> None:
        for _ in range(SHORT):
            script.launch()
            script.idle(LATE_US / SHORT if is_ahead or not step else 0.0)
        script.launch(dur_us=DEVICE_US / 10, times=10)

    scripts = in_step(2, 5, work, wait="" if is_ahead else "cudaDeviceSynchronize")
    return [script.facts(folder, rank, 2) for rank, script in enumerate(scripts)]


def test_a_first_step_without_the_lead_of_all_others_is_left_out(tmp_path: Path) -> None:
    kept, (only,) = steady_steps(with_slow_beginning(tmp_path, is_ahead=True))
    assert only.number == 1 and only.why.startswith(EMPTY_QUEUE)
    assert [facts.steps["index"].tolist() for facts in kept] == [[2, 3, 4, 5]] * 2
    assert steady_steps(with_slow_beginning(tmp_path, is_ahead=False))[1] == ()


@pytest.mark.filterwarnings("error")
def test_a_rank_that_recorded_the_first_step_alone_tells_nothing_of_its_lead(tmp_path: Path) -> None:
    first, second = with_slow_beginning(tmp_path, is_ahead=True)
    (only,) = steady_steps([first, with_steps(second, np.array([0]))])[1]
    assert only.number == 1 and only.why.startswith(EMPTY_QUEUE)


@pytest.mark.parametrize(("every", "numbers"), [(5, []), (20, [1])])
def test_it_stays_where_steps_outside_the_recording_are_as_long(tmp_path: Path, every: int, numbers: list[int]) -> None:
    sidecar = timers(every, (DEVICE_US + LATE_US) / 1e3, DEVICE_US / 1e3)
    ranks = [replace(facts, sidecar=sidecar) for facts in with_slow_beginning(tmp_path, is_ahead=True)]
    assert [step.number for step in steady_steps(ranks)[1]] == numbers


def test_a_step_in_which_all_ranks_evaluate_is_left_out_and_one_of_a_single_rank_is_not(labelled: Runs) -> None:
    run = labelled("validation in one step")
    assert "kernels that no other step runs" in run.job.left_out[-1].why  # and the step before it is alone
    assert run.report.steps.wall_us == pytest.approx(run.label["step_us"], rel=0.01) and not serious(run.report)
    assert any("kernels that no other step runs" in note.issue for note in run.report.health)
    run = labelled("validation on one rank")
    assert run.job.left_out == () and (0,) in serious(run.report).values()


@pytest.mark.parametrize(("step", "where"), [(0, "launch"), (2, "save")])
def test_a_lone_common_step_out_of_rhythm_is_not_judged(labelled: Runs, tmp_path: Path, step: int, where: str) -> None:
    held = retold.held_up(step, 40 * STEP_US, "cudaFree" if where == "save" else where)
    run = told(labelled, tmp_path, held, *([_saving] if where == "save" else []), retold.windows((0, 1, 2), (step,)))
    first = int(run.job.ranks[0].steps["index"][0])
    assert [facts.steps["index"].tolist() for facts in run.job.ranks] == [[first]] * len(run.job.ranks)
    assert [left.number for left in run.job.left_out] == [first] and run.report.verdict.bound == "none"
    assert "occurred once" in run.report.verdict.headline and not serious(run.report)
    assert any("no other step is left" in note.effect for note in run.report.health)


def _saving(ranks: Sequence[Events]) -> None:
    """The call that held the hosts up saves state."""
    for event in (e for events in ranks for e in events if e.get("name") == "cudaFree"):
        event |= {"name": "save_checkpoint", "cat": "user_annotation"}


def _two_ranks(run: Labelled) -> Labelled:
    for file in sorted(run.traces.iterdir())[2:]:
        file.unlink()
    return run


def test_ranks_without_a_common_step_keep_their_own_steady_ones(labelled: Runs, tmp_path: Path) -> None:
    run = _two_ranks(told(labelled, tmp_path, retold.held_up(0, 40 * STEP_US, "launch"), retold.windows((0, 1), (2,))))
    assert run.job.not_compared and [len(facts.steps) for facts in run.job.ranks] == [1] * len(run.job.ranks)
    assert left_out(run) == [0] and not serious(run.report)
    run = told(labelled, tmp_path, retold.held_up(2, 40 * STEP_US, "cudaFree"), _saving, retold.windows((1, 2)))
    assert left_out(run) == [1] and not serious(run.report)


def test_a_rank_of_start_up_alone_is_left_out_where_it_cannot_be_compared(labelled: Runs, tmp_path: Path) -> None:
    def without_collectives(ranks: Sequence[Events]) -> None:
        for events in ranks[1:]:
            gone = {e["args"]["correlation"] for e in events if str(e.get("name")).startswith("ncclDevKernel")}
            events[:] = [e for e in events if e.get("args", {}).get("correlation") not in gone]

    changes = retold.held_up(0, 40 * STEP_US, "launch"), retold.windows((0, 1, 2), (0,)), without_collectives
    run = _two_ranks(told(labelled, tmp_path, *changes))
    assert run.job.not_compared and run.job.rank_ids == (0,)
    assert left_out(run) == [0] and not serious(run.report)


def test_ranks_that_number_their_steps_apart_keep_the_steady_ones_of_their_own(labelled: Runs, tmp_path: Path) -> None:
    """A start-up that all of them recorded is in no step that they have in common; it occurred once all the same."""
    run = told(labelled, tmp_path, retold.held_up(0, 40 * STEP_US, "launch"))
    ranks = [rank_facts(trace) for trace in run.recorded()]
    assert len({len(facts.steps) for facts in ranks}) == 1
    apart = [replace(f, steps=f.steps.replace(index=f.steps["index"] + 100 * at)) for at, f in enumerate(ranks)]
    kept, once = steady_steps(apart)
    assert [len(facts.steps) for facts in kept] == [len(facts.steps) - 1 for facts in ranks]
    assert len(once) == len(ranks)


def timers(every: int, long_ms: float, usual_ms: float, steps: int = 60) -> Sidecar:
    """Timers that know a long step in `every` steps (0: none), the traced ones aside."""
    lengths_ms = (long_ms if every and at % every == 0 else usual_ms for at in range(steps))
    return sidecar_of({"steps": timed_steps(ms * 1e6 for ms in lengths_ms)})


def timed(labelled: Runs, every: int, long_ms: float = 30.0, steps: int = 60) -> list[RankFacts]:
    sidecar = timers(every, long_ms, USUAL_MS, steps)
    return [replace(facts, sidecar=sidecar) for facts in labelled("clean.ddp").job.ranks]


@pytest.mark.parametrize(
    ("every", "long_ms", "recurs"),
    [
        (5, 30.0, True),  # as often as in the recording
        (9, 30.0, True),  # every second recording of this length holds one
        (20, 30.0, False),  # the recording tells far more of it than the job has
        (0, 30.0, False),
        (5, 11.0, False),  # what comes again is another thing: nearer to the usual step
    ],
)
def test_a_long_step_recurs_where_others_are_as_long(labelled: Runs, every: int, long_ms: float, recurs: bool) -> None:
    found = recurring(timed(labelled, every, long_ms), TRACED_MS * 1e6, IS_LEFT_OUT)
    assert found.tolist() == [recurs, False, False, False, False]


def test_one_other_event_is_no_rhythm_and_few_timers_say_nothing(labelled: Runs) -> None:
    for ranks in (timed(labelled, 14, steps=22), timed(labelled, 5, steps=15), list(labelled("clean.ddp").job.ranks)):
        assert not recurring(ranks, TRACED_MS * 1e6, IS_LEFT_OUT).any()
