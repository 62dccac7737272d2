"""Code that a late rank runs and its peers do not."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_loop import cpu_loop
from kineto_run import Script, in_step, loaded
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.model import BLAME
from ddprof.analyzers.job.script.alone import Alone, alone_by_rank, paths_of
from ddprof.analyzers.job.script.alone import runs_alone as seen_alone
from ddprof.model import SCRIPT_FRAMES, SCRIPT_SPANS, SCRIPT_STACKS
from ddprof.tables import NULL, Table, concat

MS = 1_000_000
REPORTS = [("train.py(88): report_samples", 4_000.0)]
MODULE = "torch/nn/modules/module.py(1773): _wrapped_call_impl"


def run(folder: Path, extra: list[tuple[str, float]], slow: float = 1.0, frames: bool = True) -> LoadedRun:
    """Three ranks; rank 0 alone runs functions for so many us per step, and issues work `slow` times as slowly."""

    def work(script: Script, rank: int, step: int) -> None:
        with script.frame("train.py(121): main"):
            script.idle(1.0)
            with script.frame("train.py(64): train_step"), script.frame(MODULE), script.frame("model.py(5): forward"):
                for _ in range(30):
                    script.launch(dur_us=5.0)
                    script.idle(100.0 * (slow if rank == 0 else 1.0))
            for function, own_us in extra if rank == 0 else ():
                with script.frame(function), script.frame("helpers.py(2): walk"):
                    script.idle(own_us)

    scripts = in_step(3, 5, work)
    if not frames:
        for script in scripts:
            script.events = [event for event in script.events if event["cat"] != "python_function"]
    return loaded(scripts, folder)


def runs_alone(ranks: Sequence[RankFacts], late: int, late_us: float, step_us: float = 0.0) -> Alone | None:
    return seen_alone(paths_of(ranks, step_us), late, late_us)


def unseen(folder: Path) -> tuple[RankFacts, list[RankFacts]]:
    """The late rank and its peers, of whose stacks, which are the same, the window saw none."""
    late, *others = (replace(facts, script_spans=SCRIPT_SPANS.empty()) for facts in run(folder, REPORTS).job.ranks)
    return late, [replace(each, script_stacks=late.script_stacks, script_frames=late.script_frames) for each in others]


def test_the_function_that_only_the_late_rank_runs_is_named_with_its_line(tmp_path: Path) -> None:
    made = run(tmp_path, REPORTS)
    found = runs_alone(made.job.ranks, 0, 4_000.0)
    assert found is not None and found.words == "train.py:88 report_samples(), in helpers.py:2 walk()"
    assert (found.time_us, found.peers_us) == (pytest.approx(4_000.0, rel=0.01), 0.0)
    first = next(finding for finding in made.report.findings if finding.ranks == (0,))
    assert first.id.startswith("straggler.") and first.summary.endswith("; it alone runs train.py:88 report_samples()")
    assert "train.py:88 report_samples()" in made.report.verdict.headline and "not run it" in first.evidence[0].text
    assert first.fixes[0].setting == "train.py:88 report_samples()"
    helper = Alone("train.py:59 main()", "train.py:30 audit()", 4_000.0, 0.0, in_shared=True)
    said = "it spends the extra time in train.py:30 audit(), called from train.py:59 main()"
    assert helper.held("it") == said
    assert replace(helper, in_shared=False).held("they") == "they alone run train.py:59 main()"


def test_ranks_that_others_wait_for_are_named_by_a_line_that_explains_much(tmp_path: Path) -> None:
    """A rank that is slow everywhere runs nothing alone."""
    assert runs_alone(run(tmp_path, [], slow=3.0).job.ranks, 0, 6_000.0) is None
    little = run(tmp_path, [("train.py(88): report_samples", 1_000.0)]).job.ranks
    assert [runs_alone(little, 0, late_us) is None for late_us in (4_000.0, 1_500.0)] == [True, False]
    ranks = run(tmp_path, REPORTS, frames=False).job.ranks
    assert runs_alone(ranks, 0, 4_000.0) is runs_alone(ranks[:1], 0, 4_000.0) is None
    ranks, blame = run(tmp_path, REPORTS).job.ranks, _blame((0, 1, NULL))  # one wait is charged to nobody
    none = np.zeros(3)
    assert alone_by_rank(ranks, blame, 10_000.0, (none, none), none) == {0: runs_alone(ranks, 0, 4_000.0, 10_000.0)}
    blame = _blame((0, 0, 0))  # others wait for more: the line explains by how much longer its host is free
    free_us = [np.array([us, 0.0, 0.0]) for us in (0.0, 4_000.0)]
    by_host = [alone_by_rank(ranks, blame, 10_000.0, (none, none), longer_us) for longer_us in free_us]
    assert [list(one) for one in by_host] == [[], [0]]
    made = run(tmp_path, [("train.py(70): save_checkpoint", 8_000.0), *REPORTS])  # two findings, each with its own line
    lines = {finding.id: finding.summary + finding.fixes[0].setting for finding in made.report.findings}
    assert "save_checkpoint" in lines["host.checkpoint"] and "report_samples" in lines["straggler.host"]


def test_samples_of_the_whole_run_say_it_where_those_of_the_windows_do_not(tmp_path: Path) -> None:
    late, others = unseen(tmp_path)
    assert runs_alone((late, *others), 0, 4_000.0, 7_000.0) is None
    main, walk = (_stack_of(late, name) for name in ("main", "walk"))
    seen = [_with_totals(late, {main: 30, walk: 30}), *(_with_totals(facts, {0: 60}) for facts in others)]
    found = runs_alone(seen, 0, 4_000.0, 7_000.0)
    assert found and "report_samples" in found.words and (found.time_us, found.samples) == (pytest.approx(3_500.0), 60)
    assert runs_alone([_with_totals(late, {main: 5, walk: 5}), *seen[1:]], 0, 4_000.0, 7_000.0) is None
    # Of a function that the peers run far shorter, what they do not run of it.
    report = _stack_of(late, "report_samples")
    peers = [_with_totals(facts, {main: 60, report: 1}) for facts in others]
    found = runs_alone([_with_totals(late, {main: 30, report: 20, walk: 40}), *peers], 0, 4_000.0, 7_000.0)
    assert found and found.held("it") == "it spends the extra time in helpers.py:2 walk()" and found.peers_us


@pytest.mark.parametrize(("samples", "is_told"), [(12, True), (30, False)], ids=["five times", "twice"])
def test_a_function_that_all_ranks_run_is_told_where_no_slow_core_explains_it(
    tmp_path: Path, samples: int, is_told: bool
) -> None:
    late, others = unseen(tmp_path)
    main, walk = (_stack_of(late, name) for name in ("main", "walk"))
    ranks = [
        _with_totals(late, {main: 40, walk: 60}),
        *(_with_totals(one, {main: 88, walk: samples}) for one in others),
    ]
    assert (runs_alone(ranks, 0, 4_000.0, 10_000.0) is not None) is is_told


def test_one_sample_of_a_window_accuses_nobody_and_none_clears_no_peer(tmp_path: Path) -> None:
    late, *others = run(tmp_path, REPORTS).job.ranks
    peers = [_with_totals(replace(facts, script_spans=SCRIPT_SPANS.empty()), {0: 60}) for facts in others]
    assert runs_alone((late, *peers), 0, 4_000.0, 7_000.0) is None
    for parts in (4, 2):  # a sample stands for so much of what five steps have of it
        spans = late.script_spans.replace(resolution_ns=np.full(len(late.script_spans), 4 * MS * 5 // parts))
        assert (runs_alone([replace(late, script_spans=spans), *others], 0, 4_000.0) is not None) == (parts == 4)


@pytest.mark.parametrize(("reports", "words"), [(0, ""), (60, "train.py:88 report()")])
def test_a_line_that_trains_a_stage_of_its_own_makes_no_rank_late(tmp_path: Path, reports: int, words: str) -> None:
    """Stages of a pipeline call their schedules in different lines."""
    late, others = unseen(tmp_path)
    stages = []
    for facts, line in zip((late, *others), (44, 42, 42), strict=True):
        engine = ("torch/autograd/graph.py", 841, "_engine_run_backward", 0)
        sampled = with_stacks(facts, ("train.py", line, "main", None), engine, ("train.py", 88, "report", 0))
        rows = [("backward", 1, 60), *([("rest", 2, reports)] if reports and facts is late else [("rest", 0, 6)])]
        stages.append(replace(sampled, script_totals=totals(*rows)))
    alone = runs_alone(stages, 0, 4_000.0, 7_000.0)
    own = paths_of(stages, 7_000.0)[0]
    every = dict.fromkeys(own.training_calls, 1.0)
    assert every and own.without_phases and not own.beside_training(every)
    assert ("" if alone is None else alone.inside or alone.line) == words


def test_a_call_in_which_peers_only_wait_is_the_late_ranks(tmp_path: Path) -> None:
    """All ranks call it: one prepares the state that the others wait for."""

    def work(script: Script, rank: int, step: int) -> None:
        with script.frame("train.py(121): main"), script.frame(MODULE), script.frame("train.py(37): consolidate"):
            script.launch(dur_us=5_000.0 if rank else 5.0)
            if rank:
                script.synchronise()
            script.idle(100.0 if rank else 5_000.0)

    alone = runs_alone(loaded(in_step(3, 5, work), tmp_path).job.ranks, 0, 4_000.0)
    assert alone is not None and "consolidate" in alone.held("it")


def _blame(culprits: Sequence[int]) -> Table:
    """For each of these, 8 ms of waiting in each of five steps."""
    table = {"culprit": list(culprits), "victim": [2] * len(culprits), "dur_ns": [8 * MS * 5] * len(culprits)}
    return BLAME.table({column.name: table.get(column.name, [0] * len(culprits)) for column in BLAME.columns})


def _stack_of(facts: RankFacts, function: str) -> int:
    """The first stack that ends in this function."""
    return facts.script_frames["function"][facts.script_stacks["frame"]].tolist().index(function)


def _with_totals(facts: RankFacts, samples: dict[int, int], time_ns: Sequence[int] = ()) -> RankFacts:
    """The rank with so many samples of these stacks over the run."""
    rows = [("rest", stack, count) for stack, count in samples.items()]
    return replace(facts, script_totals=totals(*rows, time_ns=time_ns))


def _at_lines(facts: RankFacts, lines: Sequence[int]) -> RankFacts:
    """The rank with stacks of `main` (the first), and of `report`, called by it, at each of these lines."""
    called = [("train.py", line, "report", 0) for line in lines]
    return replace(with_stacks(facts, ("train.py", 1, "main", None), *called), script_spans=SCRIPT_SPANS.empty())


def test_evaluation_on_one_rank_is_named_as_such(tmp_path: Path) -> None:
    found = run(tmp_path, [("train.py(88): evaluate", 4_000.0)]).report.findings
    first = next(finding for finding in found if finding.ranks == (0,))
    assert first.id == "host.checkpoint" and "train.py:88 evaluate()" in first.summary
    assert first.summary.count("evaluate()") == 1 and "saving state" not in first.summary


def test_a_function_seen_often_is_named_with_one_of_its_lines(tmp_path: Path) -> None:
    """By samples of the whole run: the function accuses, and the line seen most of those that were seen is said."""
    bare = [_at_lines(facts, range(9, 21)) for facts in run(tmp_path, [], frames=False).job.ranks]
    seldom = dict.fromkeys(range(1, 13), 3)
    ranks = [_with_totals(facts, {0: 40, **(seldom if rank == 0 else {})}) for rank, facts in enumerate(bare)]
    found = runs_alone(ranks, 0, 4_000.0, 10_000.0)
    assert found is not None and found.words.startswith("train.py:") and "report()" in found.words


def test_samples_of_a_window_on_as_many_lines_of_a_function_name_one_of_them(tmp_path: Path) -> None:
    """The window's samples identify the function, though none of its lines was seen as often as it."""
    late, *others = run(tmp_path, REPORTS).job.ranks
    function = _stack_of(late, "report_samples")
    inside = np.flatnonzero(late.script_stacks["outer"] == function)
    of_it = np.flatnonzero(np.isin(late.script_spans["stack"], [function, *inside]))
    frame, count = int(late.script_stacks["frame"][function]), len(of_it)
    frames, stacks = late.script_frames, late.script_stacks
    row = frames.take(np.full(count, frame)).replace(line=np.arange(90, 90 + count))
    outer = stacks.take(np.full(count, function)).replace(frame=np.arange(len(frames), len(frames) + count))
    stack = late.script_spans["stack"].copy()
    stack[of_it] = np.arange(len(stacks), len(stacks) + count)
    sampled = late.script_spans.replace(stack=stack, resolution_ns=np.full(len(stack), 4 * MS * 5 // 4))
    frames, stacks = concat(SCRIPT_FRAMES, [frames, row]), concat(SCRIPT_STACKS, [stacks, outer])
    late = replace(late, script_frames=frames, script_stacks=stacks, script_spans=sampled)
    found = runs_alone([late, *others], 0, 4_000.0)
    assert found is not None and found.words.startswith("train.py:9") and "report_samples()" in found.words


@pytest.mark.parametrize(("times", "held_us"), [(4, 5_000.0), (2, 2_500.0), (1, 0.0)])
def test_a_stop_that_came_once_may_not_come_again(tmp_path: Path, times: int, held_us: float) -> None:
    stops = iter([5_000.0] * times + [0.0] * 4)
    facts = cpu_loop(tmp_path, before=lambda script: script.idle(next(stops)))
    (paths,) = paths_of([facts], 25_000.0)
    assert paths.held_us("rest") == pytest.approx(held_us, abs=50.0)


def test_a_line_of_samples_that_saves_leaves_nothing_that_makes_its_rank_late(tmp_path: Path) -> None:
    """Windows hold no stacks of it, and its host is no second reason: saving alone is told."""
    made = run(tmp_path, [], frames=False)
    frames = ("train.py", 1, "main", None), ("train.py", 31, "audit", 0), ("torch/serialization.py", 1003, "save", 1)
    bare = [replace(with_stacks(facts, *frames), script_spans=SCRIPT_SPANS.empty()) for facts in made.job.ranks]
    ranks = [_with_totals(facts, {0: 30, **({2: 30} if rank == 0 else {})}) for rank, facts in enumerate(bare)]
    none = np.zeros(3)
    alone = alone_by_rank(ranks, _blame((0, 1)), 10_000.0, (none, none), none)[0]
    assert "audit" in alone.words and alone.beside_saves == ()
