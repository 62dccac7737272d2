"""Batches made in the loop of a CPU rank are told by what makes them, whatever the function is called."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cpu_loop import Chore, cpu_loop, operators
from kineto_run import Script, held_ms
from sampled_stacks import totals, with_stacks

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.occupants import with_named_frames
from ddprof.analyzers.facts.script.phases import host_phases
from ddprof.analyzers.facts.script.prepared import asks_model, prepared_in_loop, taken_from_queue
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.analyzers.job.script.threads import BusyThread, makes_batches, making_line, takes_batches
from ddprof.readers import discover, read


def prepared_ms(facts: RankFacts) -> float:
    return held_ms(facts, "dataloader") / 3  # per step; no update comes before the first


def named(facts: RankFacts) -> set[str]:
    return {facts.strings[int(name)] for name in facts.spans_of("dataloader")["name"]}


def played(*acts: tuple[str, float, tuple[str, ...], float]) -> Chore:
    """Acts one after another: a frame ("": none), Python in it for so many us, and operators of so many us each."""

    def chore(script: Script) -> None:
        for frame, idle_us, names, dur_us in acts:
            with script.frame(frame) if frame else nullcontext():
                script.idle(idle_us)
                operators(script, *names, dur_us=dur_us)

    return chore


WARP = ("rand", "grid_sampler", "mul")
IDS, LIFT = "train.py(30): ids_of", ("lift_fresh",)
warps = played(("train.py(9): warp", 0.0, WARP, 1_000.0))
cuts_texts = played((IDS, 5_000.0, LIFT, 10.0))
cuts_texts_into_a_large_tensor = played((IDS, 5_000.0, ("empty", "to", "detach_"), 100.0), (IDS, 0.0, LIFT, 1.0))
hands_over = played(("train.py(50): hand_over", 500.0, (), 0.0))
sends_then_draws = played(("train.py(50): put", 5_000.0, (), 0.0), ("", 0.0, ("randn",), 2_000.0))
reads_then_draws = played((IDS, 5_000.0, (), 0.0), ("", 0.0, ("randn",), 100.0))
averages = played(("train.py(70): blend", 0.0, ("mul", "add") * 100, 10.0), ("", 0.0, ("randn",), 20.0))
DROPS, DRAWS = "torch/optim/optimizer.py(1069): zero_grad", ("randn", "randint")
drops_then_draws = played((DROPS, 3_000.0, (), 0.0), ("train.py(9): warp", 0.0, WARP, 400.0))
draws_then_sleeps = played(("train.py(9): stream", 0.0, DRAWS, 200.0), ("train.py(20): audit", 8_000.0, (), 0.0))
sleeps_then_draws = played(("train.py(9): stream", 6_000.0, DRAWS, 200.0))
draws_and_sleeps_on_one_line = played(("", 0.0, DRAWS, 200.0), ("", 8_000.0, (), 0.0))


@pytest.mark.parametrize(
    ("before", "ms"),
    [
        (warps, 3.0),
        (cuts_texts, 5.0),  # Python before tensors of values made them
        (cuts_texts_into_a_large_tensor, 5.4),  # what allocates the tensor does not hide that
        (drops_then_draws, 1.2),  # gradients that are dropped before are no batch
        (sleeps_then_draws, 6.4),  # one function: its batch begins with it
        (sends_then_draws, 2.0),  # Python before random numbers is something else
        (averages, 0.0),  # a moving average beside them is no data
    ],
)
def test_what_makes_a_batch_before_forward_is_told_by_its_operators(tmp_path: Path, before: Chore, ms: float) -> None:
    facts = cpu_loop(tmp_path, before=before)
    assert prepared_ms(facts) == pytest.approx(ms, abs=0.1 if ms else 0.0)
    assert before not in (warps, drops_then_draws) or named(facts) == {"train.py:9 warp()"}


def test_the_scripts_own_optimizer_prepares_no_batch(tmp_path: Path) -> None:
    updates = played(("train.py(80): step", 5_000.0, LIFT, 10.0))
    of_torch, own = tmp_path / "torch", tmp_path / "own"
    of_torch.mkdir(), own.mkdir()
    assert prepared_ms(cpu_loop(of_torch, before=updates)) == pytest.approx(5.0, abs=0.1)
    assert prepared_ms(cpu_loop(own, before=updates, update="train.py(85): add")) == 0.0


@pytest.mark.parametrize("layer", [("net.py", 5, "forward"), ("torch/nn/modules/linear.py", 5, "forward")])
def test_what_asks_the_trained_model_is_no_batch(tmp_path: Path, layer: tuple[str, int, str]) -> None:
    module = "torch/nn/modules/module.py", 1, "_call_impl"
    main, net = ("train.py", 3, "main", None), layer
    passes = [main, (*module, 0), (*net, 1), ("torch/_tensor.py", 9, "backward", 0)]
    asked = [("train.py", 40, "rollout", 0), (*module, 4), (*net, 5), ("train.py", 60, "cut", 0)]
    tree = call_tree(with_stacks(cpu_loop(tmp_path), *passes, *asked))
    seen = totals(("forward", 2, 9), ("backward", 3, 9), ("rest", 6, 9), ("rest", 7, 9))
    assert [asks_model(seen, tree, np.array([frame])) for frame in (4, 7, 0)] == [True, False, False]


def waits_for_a_thread(script: Script) -> None:
    with script.frame("queue.py(171): get"), script.frame("threading.py(327): wait"):
        script.idle(8_000.0)


def test_a_wait_for_a_queue_before_forward_is_for_the_batch(tmp_path: Path) -> None:
    facts = cpu_loop(tmp_path, before=waits_for_a_thread)
    assert prepared_ms(facts) == pytest.approx(8.0, abs=0.2) and named(facts) == {"queue.py:171 get()"}
    tree, fills = call_tree(facts), BusyThread("train.py:3 main()", 0.5, "train.py main")
    assert takes_batches(facts, tree).any() and making_line(facts) == "" and not makes_batches([facts], fills)
    stack = tree.frame.tolist().index(tree.names.index(fills.target))
    seen = replace(facts, script_totals=totals(("rest", stack, 5), thread="Thread-1"))  # no thread was, before
    assert makes_batches([seen], fills) and not makes_batches([seen], BusyThread(fills.line, 0.5, "train.py watch"))
    assert making_line(loop := cpu_loop(tmp_path, before=warps)) is None and not makes_batches([loop], fills)
    assert not named(cpu_loop(tmp_path, after=waits_for_a_thread))  # before the update


def test_what_comes_after_the_batch_or_the_backward_pass_prepares_nothing(tmp_path: Path) -> None:
    assert prepared_ms(cpu_loop(tmp_path, after=warps)) == 0.0
    assert "train.py:20 audit()" not in named(cpu_loop(tmp_path, before=draws_then_sleeps))
    assert not named(cpu_loop(tmp_path, before=draws_and_sleeps_on_one_line))


@pytest.mark.parametrize(
    ("before", "beside_ns", "yields", "share"),
    [
        (cuts_texts, 0, False, 1.0),
        (cuts_texts, 900, False, 0.5),
        (reads_then_draws, 0, False, 0.0),
        (reads_then_draws, 0, True, 1.02),  # until its draw ends
    ],
)
def test_samples_of_the_run_tell_it_where_the_window_has_none(
    tmp_path: Path, before: Chore, beside_ns: int, yields: bool, share: float
) -> None:
    """A draw is made of nothing that a function before it read, unless that is a generator, resumed for it."""
    facts = cpu_loop(tmp_path, before=before, after=hands_over)
    ((_, sources),) = discover([str(tmp_path / "rank0.json")]).runs
    trace = with_named_frames(read(sources[0]))
    tree = call_tree(trace)
    phases = host_phases(trace.script_spans, tree, {})
    annotated = {Phase.FORWARD: phases.forward, Phase.BACKWARD: phases.backward, Phase.OPTIMIZER: phases.optimizer}
    functions = [tree.written[frame][2] for frame in tree.frame]
    stacks = (functions.index(name) for name in ("ids_of", "hand_over"))
    seen = totals(*(("rest", at, 9) for at in stacks), time_ns=[900, beside_ns])
    frames = trace.script_frames.replace(is_generator=(trace.script_frames["function"] == "ids_of") & yields)
    coarse = replace(trace, script_spans=trace.script_spans.take(slice(0, 0)), script_totals=seen, script_frames=frames)
    marks_ns = np.append(facts.marks[0], facts.marks[1][-1])
    start, end = prepared_in_loop(coarse, np.unique(trace.script_spans["track"]), annotated, marks_ns).bounds
    assert float((end - start).sum()) / 1e6 / 3 == pytest.approx(5.0 * share, abs=0.1)


@pytest.mark.parametrize(("evaluates_ns", "share"), [(0, 1.0), (300, 0.75), (1_200, 0.0)])
def test_a_model_that_is_called_before_the_batch_is_no_wait_for_it(
    tmp_path: Path, evaluates_ns: int, share: float
) -> None:
    """One rank evaluates between its update and the next batch, which a thread of the script fills in."""
    facts = cpu_loop(tmp_path, before=waits_for_a_thread)
    ((_, sources),) = discover([str(tmp_path / "rank0.json")]).runs
    trace = with_named_frames(read(sources[0]))
    phases, tree = host_phases(trace.script_spans, call_tree(trace), {}), call_tree(trace)
    annotated = {Phase.FORWARD: phases.forward, Phase.BACKWARD: phases.backward, Phase.OPTIMIZER: phases.optimizer}
    functions = [tree.written[frame][2] for frame in tree.frame]
    stacks = (functions.index(name) for name in ("get", "_wrapped_call_impl"))
    seen = totals(*(("rest", at, 9) for at in stacks), time_ns=[900, evaluates_ns])
    coarse = replace(trace, script_spans=trace.script_spans.take(slice(0, 0)), script_totals=seen)
    marks_ns = np.append(facts.marks[0], facts.marks[1][-1])
    start, end = taken_from_queue(coarse, np.unique(trace.script_spans["track"]), annotated, marks_ns).bounds
    assert float((end - start).sum()) / 1e6 / 3 == pytest.approx(8.0 * share, abs=0.3)


def test_what_the_fetch_of_a_loader_makes_tells_nothing_of_what_came_before(tmp_path: Path) -> None:
    def sleeps_then_fetches(script: Script) -> None:
        with script.frame("train.py(20): audit"):
            script.idle(8_000.0)
        with script.frame("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"):
            operators(script, "lift_fresh", dur_us=100.0)

    assert not any("audit" in name for name in named(cpu_loop(tmp_path, before=sleeps_then_fetches)))
