"""Communication that could go: what of a loop is, and what is not because the training needs it."""

from dataclasses import replace
from pathlib import Path

import pytest
from labelled_runs import only_run
from repeated_calls import ELEMENTS, GRADIENTS, STEPS, Loop

from ddprof.analyzers.diagnose import CONDITIONS
from ddprof.analyzers.engine import LoadedRun
from ddprof.analyzers.job.redundant.find import find_needless, needless_us
from ddprof.analyzers.job.traffic.kinds import ACCUMULATION, BUFFERS, METRICS, NORMS, OF_LOSS, PARAMETERS, UNUSED
from ddprof.findings import Alters
from ddprof.sidecar import ModelParameters, Sidecar
from ddprof.sidecar.calls import WrappedModel

FAULTS = {
    ACCUMULATION: (Loop(micro=4, reduced=4), Loop(micro=4), 3 * STEPS, "comm.bandwidth_bound"),
    BUFFERS: (Loop(buffers=True), Loop(), STEPS, "comm.bandwidth_bound"),
    UNUSED: (Loop(used=GRADIENTS), Loop(), STEPS, "comm.latency_bound"),
    METRICS: (Loop(values=6), Loop(), 6 * STEPS, "comm.latency_bound"),
    NORMS: (Loop(norms=12), Loop(norms=1), 11 * STEPS, "comm.latency_bound"),
}


def calls(run: LoadedRun) -> dict[str, list[int]]:
    """Counts of calls that each rank could leave out, by kind."""
    return {kind: [int(calls.sum()) for calls in found.comms] for kind, found in run.measures.needless.items()}


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("marked", [True, False])
def test_a_fault_is_found_and_priced_by_the_step_without_it(tmp_path: Path, kind: str, marked: bool) -> None:
    """With ranges of capture around backward passes, and from autograd's own events alone."""
    fault, healthy, count, rule = FAULTS[kind]
    run = only_run(replace(fault, marked=marked).written(tmp_path / "fault"))
    assert calls(run) == {kind: [count] * 2}
    without_us = only_run(replace(healthy, marked=marked).written(tmp_path / "healthy")).measures.step_us
    finding = run.report.findings[0]
    assert (finding.id, finding.ranks) == (rule, ())
    assert run.report.steps.wall_us - finding.recoverable_us.value == pytest.approx(without_us, rel=0.02)
    held_us = needless_us(run.job, run.measures.needless[kind], waits=True)
    assert finding.recoverable_us.value <= held_us.max() and finding.by_ledger_us is not None


def test_few_values_that_an_optimizers_closure_reduces_are_one_by_one(tmp_path: Path) -> None:
    """Lightning's hooks before the optimizer's step run inside it."""
    assert calls(only_run(Loop(norms=5, closure=True).written(tmp_path))) == {NORMS: [4 * STEPS] * 2}


def test_what_a_loss_may_need_is_told_and_may_gain_nothing(tmp_path: Path) -> None:
    run = only_run(Loop(before_backward=2).written(tmp_path))
    assert calls(run) == {OF_LOSS: [2 * STEPS] * 2}
    (finding,) = (one for one in run.report.findings if "between forward and backward pass" in one.summary)
    assert finding.recoverable_us.low == 0 < finding.recoverable_us.value


@pytest.mark.parametrize(
    "loop",
    [
        *(Loop(), Loop(micro=4), Loop(used=GRADIENTS - 1)),  # no_sync() in all but the last; the search finds one
        Loop(values=6, rarely=True),  # every N steps
        *(Loop(norms=2), Loop(micro=2, reduced=2, optimizers=2)),  # clipping needs them; two models with an optimizer
        *(Loop(micro=4, reduced=4, zeroed=True), Loop(gathered=2**18)),  # each of another sum; a sharded optimizer's
        Loop(micro=4, norms=1, zeroed=True, closure=True),  # a search along a line needs the loss of each pass
    ],
)
def test_what_training_needs_is_left_alone(tmp_path: Path, loop: Loop) -> None:
    assert not only_run(loop.written(tmp_path)).measures.needless


@pytest.mark.parametrize(
    ("kind", "sent", "is_needless"),
    [("ddp", ELEMENTS, True), ("ddp", ELEMENTS // 2, False), ("fsdp2", ELEMENTS, False), ("module", ELEMENTS, False)],
)
def test_parameters_that_are_equal_need_not_be_sent(tmp_path: Path, kind: str, sent: int, is_needless: bool) -> None:
    """Four broadcasts after the optimizer hold the bytes that DistributedDataParallel reduces of gradients."""
    job = only_run(Loop(sent=sent).written(tmp_path)).job
    wrapped = Sidecar(schema="ddprof.sidecar/1", models=(WrappedModel(kind),))
    needless = find_needless(replace(job, ranks=tuple(replace(facts, sidecar=wrapped) for facts in job.ranks)))
    told = {kind: [int(calls.sum()) for calls in each.comms] for kind, each in needless.items()}
    assert told == ({PARAMETERS: [4 * STEPS] * 2} if is_needless else {})


def test_models_with_one_optimizer_keep_a_pass_each(tmp_path: Path) -> None:
    job = only_run(Loop(micro=2, reduced=2).written(tmp_path)).job
    assert find_needless(job)[ACCUMULATION].number == 2
    twins = Sidecar(schema="ddprof.sidecar/1", models=(WrappedModel("ddp"), WrappedModel("ddp")))
    assert not find_needless(replace(job, ranks=tuple(replace(facts, sidecar=twins) for facts in job.ranks)))


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize("touched", [True, False])
def test_no_sync_is_advised_flatly_where_gradients_add_up(tmp_path: Path, touched: bool, marked: bool) -> None:
    run = only_run(Loop(micro=4, reduced=4, touched=touched, marked=marked).written(tmp_path))
    (fix,) = run.report.findings[0].fixes
    assert run.measures.needless[ACCUMULATION].is_proven is not touched
    assert fix.condition == (CONDITIONS[Alters.REDUCTIONS] if touched else "")


@pytest.mark.parametrize(("parameters", "is_model"), [(2**17, 0), (2**18, 1), (2**22, 0), (9, 1), (900, 0)])
def test_more_than_the_model_or_a_small_part_of_it_is_no_model(tmp_path: Path, parameters: int, is_model: int) -> None:
    """Each rank gathers 1 MiB: logits of a small model, or its parameters in 32 bit. Or it has next to none."""
    loop = Loop(gathered=2**18) if parameters > 900 else Loop(values=6, reduced=0)  # scalars: all gradients, perhaps
    job = only_run(loop.written(tmp_path)).job
    counted = Sidecar(schema="ddprof.sidecar/1", world_size=2, parameters=ModelParameters(count=parameters))
    told = replace(job, ranks=tuple(replace(facts, sidecar=counted) for facts in job.ranks))
    assert (METRICS not in find_needless(told)) == is_model
