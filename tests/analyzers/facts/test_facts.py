"""Facts of one rank: matrix kernels, recomputation, work beside training's own, batches made by operators, calls that
lost their kernels, and windows that open on work launched before."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cpu_loop import operators
from gloo_traces import Events, in_steps, operator
from kineto_run import Script
from labelled_runs import Runs, sample_run

from ddprof.analyzers.facts.comms import COALESCED, LOST, _carriers, _spanning
from ddprof.analyzers.facts.early import describe_early, is_early
from ddprof.analyzers.facts.extract import rank_facts
from ddprof.analyzers.facts.memory import peak_parts, recomputed
from ddprof.analyzers.facts.model import COMMS, DEVICE_OPS, MESSAGES, NO_STRING, PHASES, Phase, RankFacts
from ddprof.analyzers.facts.names import is_gemm
from ddprof.analyzers.facts.stepping.steps import host_steps
from ddprof.analyzers.facts.work import step_of_launch
from ddprof.analyzers.job.assemble import job_facts
from ddprof.model import Kind, RankTrace
from ddprof.tables import NULL, Table


@pytest.mark.parametrize(
    ("kernel", "is_fp32"),
    [
        ("volta_scudnn_128x64_relu_interior_nn_v1", True),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_cublas", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(Params)", False),
        ("ampere_s1688gemm_128x128_ldg8_stages_32x5_tn", False),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_kernel_cudnn", False),
        ("nvjet_sss_128x256_32x4_1x2_h_bz_coopA_NTN", False),
    ],
)
def test_single_precision_operands_on_tensor_cores_are_tf32(tmp_path: Path, kernel: str, is_fp32: bool) -> None:
    script = Script()
    for _ in script.steps(2):
        script.launch(kernel, dur_us=50.0, op="aten::mm")
        operator = next(e for e in reversed(script.events) if e["name"] == "aten::mm")
        operator["args"] |= {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    groups = script.facts(tmp_path).kernel_groups
    assert groups["is_gemm"].all() and groups["is_fp32"].astype(bool).tolist() == [is_fp32] * len(groups)


@pytest.mark.parametrize(
    ("kernel", "is_product"),
    [
        ("triton_poi_fused_convolution_relu_6", False),
        ("triton_red_fused_convolution_backward_native_batch_norm_backward_3", False),
        ("triton_tem_fused_convolution_12", True),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::lgamma_kernel_cuda(at::TensorIterator&)>",
            False,
        ),
        ("void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(float)", False),
        ("void implicit_convolve_sgemm<float, float, 512, 6, 8, 3, 3, 5, 1, false, true, true>(int)", True),
        ("sm80_wmma_kernel_mma_16816", True),
    ],
)
def test_kernels_named_after_what_they_follow_are_no_matrix_products(kernel: str, is_product: bool) -> None:
    assert is_gemm([kernel]).tolist() == [is_product]


LAYERS, OPERATORS = 4, 10  # of the model in corpus.py, and of the forward pass of one of its layers
MIB = 2**20


@pytest.mark.parametrize(
    ("name", "layers"),
    [("needless recomputation", LAYERS), ("recomputation of unknown use", LAYERS // 2), ("clean.ddp", 0)],
)
def test_what_runs_again(labelled: Runs, name: str, layers: int) -> None:
    """Every operator of the layers that are not kept, and no operator of backward."""
    facts = labelled(name).job.ranks[0]
    marked = recomputed(facts.device_ops, facts.strings)
    assert int((marked & (step_of_launch(facts) >= 0)).sum()) == layers * OPERATORS * len(facts.steps)
    operators = {facts.strings[int(code)] for code in np.unique(facts.device_ops["operator"][marked])}
    assert not any("backward" in operator for operator in operators)


def test_a_pass_without_operators_says_nothing_and_keeping_takes_what_tensors_grow(labelled: Runs) -> None:
    facts = labelled("needless recomputation").job.ranks[0]
    unnamed = facts.device_ops.replace(operator=np.full(len(facts.device_ops), -(2**31), np.int32))
    assert not recomputed(unnamed, facts.strings).any()
    assert facts.memory["kept_bytes"] == pytest.approx(0.4 * facts.memory["total_bytes"], rel=0.01)


def test_the_parts_sum_to_the_peak_and_each_phase_has_what_it_added() -> None:
    facts = sample_run("full_memory").job.ranks[0]
    found = peak_parts(facts)
    assert found is not None and found.before + sum(found.grown) == found.peak == facts.memory["peak_allocated_bytes"]
    found = peak_parts(_with_totals(facts, 100, 160, 150, 190, 100))
    assert found is not None and found.phase == "optimizer" and found.step == 0 and found.before == 100 * MIB
    assert [part // MIB for part in found.grown] == [60, -10, 40, 0]  # forward, backward, optimizer, elsewhere
    assert peak_parts(replace(facts, phases=PHASES.empty(), engine_passes=facts.engine_passes.take([]))) is None
    assert peak_parts(replace(facts, memory={})) is None


def _with_totals(facts: RankFacts, *totals_mib: int) -> RankFacts:
    """The rank with a phase each quarter of its first step, and totals before it and in the middle of each."""
    start, end = int(facts.steps["mark_ns"][0]), int(facts.steps["mark_end_ns"][0])
    quarter = (end - start) // 4
    begin = [start, start + quarter, start + 2 * quarter]
    phases = {"start_ns": begin, "end_ns": [at + quarter for at in begin], "name": [0, 0, 0]}
    phases = PHASES.table({**phases, "phase": [Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER]})
    at = [start - 1, *(at + quarter // 2 for at in (*begin, start + 3 * quarter))]
    curve = {"at_ns": at[: len(totals_mib)], "allocated_bytes": [value * MIB for value in totals_mib]}
    return replace(facts, phases=phases, memory={"curve": curve})


SEARCH_US, SINK_AT_US, SINK_US = 80.0, 200.0, 50.0
NODES, LONG_US = 10, 5_000.0


@pytest.mark.parametrize(
    ("following", "counted_us"),
    [
        ("_DDPSink", SINK_AT_US + SINK_US),
        ("aten::cross_entropy_loss", SEARCH_US),  # another operator comes first: no node was passed
    ],
)
def test_a_search_lasts_until_outputs_have_passed_its_node(tmp_path: Path, following: str, counted_us: float) -> None:
    def play(rank: int, at: float) -> Events:
        return [
            operator(rank, "aten::addmm", at, 500.0),
            operator(rank, "torch.distributed.ddp.reducer::search_unused_parameters", at + 600.0, SEARCH_US),
            operator(rank, following, at + 600.0 + SINK_AT_US, SINK_US),
            operator(rank, "_DDPSink", at + 1_500.0, SINK_US),
        ]

    searches = in_steps(tmp_path, 3, 5_000.0, play, 1).job.ranks[0].unused_searches
    assert ((searches["end_ns"] - searches["start_ns"]) / 1e3).tolist() == pytest.approx([counted_us] * 3)


@pytest.mark.parametrize("recomputed_us", [0.0, 101.0])
def test_stacks_are_as_many_as_nodes_and_as_long_as_views_tell(tmp_path: Path, recomputed_us: float) -> None:
    """A stack is a small part of an operator that computes for long; one that calls another writes none itself. Views
    of a forward pass that is computed again, inside nodes, write stacks and do not tell how long others take.
    """
    script = Script()
    for _ in script.steps(3):
        for _ in range(NODES // 2):
            with script.frame("aten::linear", "cpu_op"):
                script.host("aten::t", 101.0)
                script.host("aten::addmm", LONG_US)
        operators(script, "view", count=50, dur_us=1.0)
        for _ in range(NODES):
            with script.frame("autograd::engine::evaluate_function: TBackward0", "cpu_op"):
                with script.frame("TBackward0", "cpu_op"):
                    script.host("aten::t", 1.0)
                    if recomputed_us:
                        script.host("aten::view", recomputed_us)
                operators(script, "isnan", "any", "item")
    work = script.facts(tmp_path, on_cpu=True).anomaly_work
    writes, searches = work.take(~work["is_check"]), work.take(work["is_check"])
    assert len(searches) == 3 * NODES and (searches["share"] == 1.0).all()
    length_us = (writes["end_ns"] - writes["start_ns"]) / 1e3
    assert sorted(set(length_us.tolist())) == [101.0, LONG_US]
    assert (length_us * writes["share"]).tolist() == pytest.approx([100.0] * 3 * NODES)


def prepared_us(script: Script, folder: Path) -> float:
    start, end = script.facts(folder).spans_of("dataloader").bounds
    return float((end - start).sum()) / 1e3


def steps(script: Script, count: int, *, before: tuple[str, ...] = (), copies: bool = True, after: str = "") -> Script:
    """Steps of five kernels; operators on the CPU, 400 us and 50 us of Python each, `before` them, and one `after`."""
    for _ in script.steps(count):
        for name in before:
            script.host(name, 400.0)
            script.idle(50.0)
        if copies:
            script.copy(1_000_000)
        script.launch(dur_us=300.0, times=5)
        if after:
            script.host(after, 2_000.0)
        script.idle(20.0)
    return script


def test_operators_before_the_copy_of_a_batch_make_it_and_short_ones_do_not(tmp_path: Path) -> None:
    made = steps(Script(), 4, before=("aten::_upsample_bicubic2d_aa", "aten::sub", "aten::stack"))
    assert prepared_us(made, tmp_path) == pytest.approx(4 * (3 * 400 + 2 * 50), abs=1)
    script = Script()
    for _ in script.steps(4):
        for _ in range(20):
            script.host("aten::view", 6.0)
        script.copy(1_000_000)
        script.launch(dur_us=300.0)
    assert prepared_us(script, tmp_path) == 0.0


@pytest.mark.parametrize(
    "healthy",
    [
        {"before": ("aten::stack",), "copies": False},  # nothing is copied to the device: no batch
        {"after": "aten::_adam_on_the_cpu"},  # an optimizer that runs on the CPU
        {},
    ],
)
def test_other_work_of_the_cpu_makes_no_batch(tmp_path: Path, healthy: dict[str, object]) -> None:
    assert prepared_us(steps(Script(), 4, **healthy), tmp_path) == 0.0  # type: ignore[arg-type]


def test_a_labelled_run_is_named_and_priced(labelled: Runs) -> None:
    run = labelled("batches made in the loop")
    finding = run.report.findings[0]
    assert finding.id == "input.starved" and "operators on the CPU" in finding.summary
    left_us = run.report.steps.wall_us - finding.recoverable_us.value
    assert left_us == pytest.approx(run.fault["counterfactual_step_us"], rel=0.03)


KERNELS, LAUNCHED_NS = np.array([10, 11, 12]), np.array([105, 205, 305])


def carriers(*own: int) -> list[tuple[int, bool]]:
    """For calls at 100, 110, 200, 210, 300 and 310 ns."""
    called_ns = np.array([100, 110, 200, 210, 300, 310])[: len(own)]
    found, lost = _carriers(np.array(own), called_ns, KERNELS, LAUNCHED_NS)
    return list(zip(found.tolist(), lost.tolist(), strict=True))


def test_a_call_has_its_own_kernel_goes_with_the_next_one_or_keeps_its_place() -> None:
    assert carriers(10, COALESCED, 11, 12) == [(10, False), (11, False), (11, False), (12, False)]
    assert carriers(*[COALESCED] * 3) == [(10, False), (11, False), (11, False)]  # no call tells which is its own
    assert carriers(10, LOST, 11) == [(10, False), (11, True), (11, False)]
    assert carriers(10, COALESCED, LOST, COALESCED, 12)[1:4] == [(11, True), (11, True), (12, False)]
    assert carriers(10, 11, 11, 11, 12, LOST)[-1] == (-1, True)  # no later kernel


def test_the_call_around_a_launch_is_the_innermost_that_has_not_ended() -> None:
    events = {"track": np.zeros(3, np.int64), "ts_ns": np.array([40, 0, 10]), "dur_ns": np.array([10, 100, 10])}
    trace: Any = SimpleNamespace(events=events)
    at_ns = np.array([5, 15, 30, 45, 60, 200])
    assert _spanning(trace, np.arange(3), at_ns, np.zeros(6, np.int64)).tolist() == [1, 2, 1, 0, 1, -1]


def without_some(trace: RankTrace, share: float, seed: int) -> RankTrace:
    """Records of kernels of messages lose their kind: no reader sees them as work of the device, nor their launches."""
    kind = trace.events["kind"].copy()
    moves = np.array(["nccl" in s.lower() and "SendRecv" in s for s in trace.strings])[trace.events["name"]]
    gone = (kind == Kind.KERNEL) & moves & (np.random.default_rng(seed).uniform(size=len(kind)) < share)
    kind[gone] = Kind.OTHER
    args = trace.collectives.take(~gone[trace.collectives["row"]])
    return replace(trace, events=trace.events.replace(kind=kind), collectives=args)


def test_lost_kernels_leave_all_other_messages_matched_and_counted(labelled: Runs) -> None:
    run = labelled("slow device in a pipeline")
    lossy = [without_some(trace, 0.04, seed) for seed, trace in enumerate(run.recorded())]
    whole, found = run.job, job_facts([rank_facts(trace) for trace in lossy])
    assert len(found.members) < len(whole.members)
    assert found.not_compared == "" and found.pipeline == whole.pipeline
    messages = found.instances["is_message"].astype(bool) & (found.instances["members"] == 2)
    assert messages.sum() > 0.85 * whole.instances["is_message"].sum()
    longest_ns = found.instances["transfer_ns"][messages].max()
    assert longest_ns <= whole.instances["transfer_ns"].max()  # none is matched with another


PERIOD, STEP_NS = 3, 1_000


def comms(early: int, steps: int) -> Table:
    """A stream with `early` communications, then PERIOD in each of `steps` steps; group by place in the step."""
    order = np.arange(early + steps * PERIOD)
    step, place = np.divmod(order - early, PERIOD)
    columns = {c.name: np.full(len(order), NULL if c.nullable else 0) for c in COMMS.columns}
    group = np.array((7, 8, 7))[place % 3]
    seq = np.where(group == 7, 2 * step + 100 + (place == 2), step + 50)
    of_launch = {"op": (1 + place, 0), "group": (group, NO_STRING), "seq": (seq, NULL)}
    of_launch["launch_ns"] = (step * STEP_NS + 10 * place, NULL)
    told = {name: np.where(order >= early, value, unknown) for name, (value, unknown) in of_launch.items()}
    times = {"start_ns": 200 * order, "end_ns": 200 * order + 100}
    return COMMS.table({**columns, **told, **times, "name": 40 + place})


def steps_of(count: int) -> Table:
    start = STEP_NS * np.arange(count)
    return host_steps(np.arange(count), start, start + STEP_NS)


@pytest.mark.parametrize("early", [1, 3, 5])
def test_early_communications_are_those_of_a_step_later(early: int) -> None:
    given = comms(early, 2)
    is_before = np.arange(len(given)) < early
    row = {"comm": early + 2, "is_send": True, "peer": 4, "group": 7, "size_bytes": 11, "tag": 0, "called_ns": 5}
    sent = MESSAGES.table({name: [value] for name, value in {**row, "is_lost": False}.items()})
    told, messages = describe_early(given, sent, steps_of(2), is_before)
    place = np.arange(-early, 0) % PERIOD
    for name in ("op", "group"):
        assert told[name][:early].tolist() == comms(0, 2)[name][place].tolist()
    for group in (7, 8):  # numbers run on without a hole across the first recorded launch
        assert (np.diff(told["seq"][told["group"] == group]) == 1).all()
    copies = [early - 1, *([early - 1 - PERIOD] if early > PERIOD else [])]
    assert sorted(messages["comm"].tolist()) == sorted([early + 2, *copies])


def test_early_is_what_precedes_a_first_launch_and_streams_that_do_not_repeat_are_left_alone() -> None:
    two = comms(2, 2)
    other_names, uneven = two.replace(name=np.array([99, *two["name"][1:]])), two.take(np.arange(7))
    for given in (other_names, uneven):
        told, _ = describe_early(given, MESSAGES.empty(), steps_of(2), np.arange(len(given)) < 2)
        assert (told["group"][:2] == NO_STRING).all() and (told["seq"][:2] == NULL).all()
    columns = {c.name: np.full(5, NULL if c.nullable else 0) for c in DEVICE_OPS.columns}
    launch = np.array([NULL, 5, NULL, NULL, 20])
    ops = DEVICE_OPS.table({**columns, "start_ns": [0, 10, 20, 15, 30], "track": [0, 0, 0, 1, 1], "launch_ns": launch})
    assert is_early(ops).tolist() == [True, False, False, True, False]
    assert not is_early(ops.replace(launch_ns=np.full(5, NULL))).any()
    launch = np.array([NULL, 12, NULL, NULL, NULL])
    started = ops.replace(track=np.array([0, 0, 0, 2, 2]), launch_ns=launch, start_ns=np.array([0, 15, 20, 5, 30]))
    assert is_early(started).tolist() == [True, False, False, True, False]
