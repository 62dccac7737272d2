"""The peak of a snapshot against the allocator that made it, and against torch's own reading of it."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from snapshots import BACKWARD, BATCH, ENGINE, FORWARD, MIB, OPTIMIZER, PARAMETERS, TORCH, Allocator

from ddprof.slices.memory.category import category_of, line_of
from ddprof.slices.memory.explain import explain
from ddprof.slices.memory.model import CodeFrame, DeviceMemory
from tests.slices.memory.test_content import read

ENGINE_RUN, MODEL = (f"{TORCH}/autograd/graph.py", "_engine_run_backward"), ("/me/model.py", "forward")
CALL = (f"{TORCH}/nn/modules/module.py", "_call_impl")
CATEGORIES = [
    *(([(f"{TORCH}/utils/checkpoint.py", "recompute"), ENGINE_RUN], "gradients"), ([MODEL, ENGINE_RUN], "activations")),
    ([(f"{TORCH}/autograd/function.py", "apply"), MODEL], "activations"),
    ([(f"{TORCH}/distributed/fsdp/_flat_param.py", "_alloc"), CALL], "communication"),
    *(([(f"{TORCH}/nn/modules/linear.py", "__init__")], "parameters"), ([("/me/data.py", "__init__")], "other")),
    *(([("/env/apex/optimizers/fused_adam.py", "step")], "optimizer"), ([], "other")),
]
STACKS = [FORWARD, BACKWARD, ENGINE, OPTIMIZER, PARAMETERS, BATCH, []]
ACT = st.tuples(st.sampled_from(["alloc", "free", "empty"]), st.integers(1, 6 * MIB), st.sampled_from(STACKS))


def told(folder: Path, content: dict[str, Any]) -> DeviceMemory:
    (device,) = explain(read(folder, content)).devices
    return device


def allocated(*blocks: tuple[int, list[Any]], freed: Sequence[int] = ()) -> Allocator:
    """An allocator that gave out blocks of so many MiB, each with its stack, then took these back, by number."""
    allocator = Allocator()
    addresses = [allocator.alloc(mib * MIB, stack) for mib, stack in blocks]
    for number in freed:
        allocator.free(addresses[number])
    return allocator


def shares(device: DeviceMemory) -> dict[str, int]:
    return {share.category: share.size_bytes for share in device.shares}


def test_the_peak_by_category_and_line(tmp_path: Path) -> None:
    allocator = allocated((40, PARAMETERS), (3, BATCH), (60, FORWARD), (30, ENGINE), freed=[2, 1])
    allocator.alloc(20 * MIB, OPTIMIZER)
    device = told(tmp_path, allocator.dump())
    assert device.held_bytes == 133 * MIB and device.at_us == 70
    expected = {"activations": 60, "parameters": 40, "gradients": 30, "other": 3}
    assert shares(device) == {name: mib * MIB for name, mib in expected.items()}
    lines = [(line.frame.function, line.size_bytes // MIB) for line in device.lines]
    assert lines == [("forward", 60), ("main", 40), ("AddmmBackward0", 30), ("main", 3)]
    assert device.unknown_bytes == 3 * MIB and device.lineless_bytes == 0 and not device.notes


def test_what_the_optimizer_frees_is_not_its_state_and_what_was_before_keeps_its_stack(tmp_path: Path) -> None:
    temporary = told(tmp_path, allocated((8, OPTIMIZER), (2, OPTIMIZER), freed=[1]).dump())
    assert shares(temporary) == {"optimizer_state": 8 * MIB, "optimizer_temporary": 2 * MIB}
    made_anew_in_each_step = told(tmp_path, allocated((8, OPTIMIZER), (1, FORWARD), freed=[0]).dump())
    assert shares(made_anew_in_each_step) == {"optimizer_state": 8 * MIB, "activations": MIB}
    since = len(allocated((8, PARAMETERS), (4, FORWARD)).trace)
    device = told(tmp_path, allocated((8, PARAMETERS), (4, FORWARD), (1, FORWARD), freed=[1]).dump(since))
    assert shares(device) == {"parameters": 8 * MIB, "before": 4 * MIB, "activations": MIB}
    assert device.held_bytes == 13 * MIB and device.unknown_bytes == 4 * MIB


def test_failed_allocations_that_fragmentation_explains_and_that_are_too_large_anyway(tmp_path: Path) -> None:
    allocator = allocated(*20 * [(10, FORWARD)], freed=range(0, 20, 2))
    allocator.fail(70 * MIB, 5 * MIB, FORWARD)
    device = told(tmp_path, allocator.dump())
    (failure,) = device.out_of_memory
    assert (failure.asked_bytes, failure.device_free_bytes) == (70 * MIB, 5 * MIB)
    assert failure.trapped_bytes == 100 * MIB == failure.reserved_bytes - failure.held_bytes
    assert "expandable_segments:True" in device.advice[0] and "70 MiB failed while 100 MiB" in device.advice[0]
    full = allocated((100, FORWARD))
    full.fail(500 * MIB, 5 * MIB, FORWARD)
    advice, largest = told(tmp_path, full.dump()).advice
    assert "The largest part is activations (100 MiB)" in largest and "in training activation checkpointing" in largest
    assert "would not have fitted" in advice and "expandable" not in advice


@pytest.mark.parametrize(
    ("blocks", "freed", "words"),
    [
        ([(60, []), (40, ENGINE)], [0], "whose purpose is known is gradients .40 MiB.: .* of parameters.* micro-batch"),
        (3 * [(9, BATCH), (4, ENGINE)], [], "Each step keeps more.* train.py:35 main allocated 27 MiB in 3 steps,"),
        *(
            (3 * [(9, BATCH), (4, between)], freed, "^(?!Each step)")
            for freed, between in (([2], ENGINE), ([], FORWARD))
        ),
    ],  # neither what is freed in the end, nor what a loop over layers makes: no gradient lies between two of them
)
def test_the_first_advice(tmp_path: Path, blocks: list[tuple[int, list[Any]]], freed: list[int], words: str) -> None:
    assert re.search(words, told(tmp_path, allocated(*blocks, freed=freed).dump()).advice[0])


def fragments(device: DeviceMemory) -> list[str]:
    return [advice for advice in device.advice if "expandable" in advice]


def test_few_fragments_a_full_device_without_and_pages_that_come_and_go_get_no_advice(tmp_path: Path) -> None:
    for held, told_of in ((300, 1), (9900, 0)):  # MiB, beside 100 that lie free between blocks
        allocator = allocated(*20 * [(10, FORWARD)], freed=range(0, 20, 2))
        allocator.alloc(held * MIB, PARAMETERS)
        assert len(fragments(told(tmp_path, allocator.dump()))) == told_of  # of a share worth a warning, and of less
    device = told(tmp_path, allocated(*8 * [(20, FORWARD)]).dump())
    assert fragments(device) == [] and device.trapped_bytes == 0 and device.empty_bytes == 0
    paged = Allocator(is_expandable=True)
    paged.free(paged.alloc(30 * MIB, FORWARD))
    paged.empty_cache()
    paged.alloc(4 * MIB, FORWARD)
    device = told(tmp_path, paged.dump())
    assert (device.held_bytes, device.reserved_bytes, device.trapped_bytes) == (30 * MIB, 30 * MIB, None)
    assert fragments(device) == []


@settings(max_examples=60, deadline=None)
@given(st.lists(ACT, min_size=1, max_size=40), st.integers(0, 30), st.booleans(), st.sampled_from([2, 4, 5]))
@example([("empty", 1, [])], 0, False, 4)  # nothing is ever held
def test_any_job_agrees_with_the_allocator_and_torch(tmp_path_factory, acts, since, is_expandable, protocol) -> None:
    allocator, held, curve = Allocator(is_expandable=is_expandable), {}, {}
    for act, amount, stack in acts:
        if act == "alloc":
            held[allocator.alloc(amount, stack)] = amount
        elif act == "free" and held:
            address = list(held)[amount % len(held)]
            allocator.free(address)
            del held[address]
        elif act == "empty":
            allocator.empty_cache()
        reserved = sum(block[1] for blocks in allocator.segments.values() for block in blocks)
        curve[len(allocator.trace)] = (sum(held.values()), reserved)
    since = max([0, *(at for at in curve if at <= since)])
    content = allocator.dump(since)
    devices = explain(read(tmp_path_factory.mktemp("s"), content, protocol)).devices
    kept = [values for at, values in curve.items() if at >= since]
    most = max(value for value, _ in kept)
    if not most:
        assert devices == ()
        return
    (device,) = devices
    assert device.held_bytes == most == sum(share.size_bytes for share in device.shares)
    assert most == sum(line.size_bytes for line in device.lines) + device.lineless_bytes
    assert device.most_reserved_bytes == max(value for _, value in kept) and device.notes == ()
    if device.trapped_bytes is not None and device.empty_bytes is not None:
        assert device.trapped_bytes + device.empty_bytes == device.reserved_bytes - device.held_bytes
    _compare_with_torch(content, device)


def _compare_with_torch(content: dict[str, Any], device: DeviceMemory) -> None:
    """torch.cuda._memory_viz sums what is held at the end, and checks that its parts are what is reserved."""
    viz = pytest.importorskip("torch.cuda._memory_viz")
    said = viz.segsum(content)
    held = sum(b["requested_size"] for s in content["segments"] for b in s["blocks"] if b["state"] != "inactive")
    assert f"total_allocated: {viz.Bytes(held)}" in said
    if len(device.curve.held_bytes) == device.events + 1:
        assert device.curve.held_bytes[-1] == held
        assert f"total_reserved: {viz.Bytes(device.curve.reserved_bytes[-1])}" in said
    assert re.findall(r"(\d+) entries", viz.trace(content)) == [str(device.events)] or device.events == 0


@pytest.mark.parametrize(("stack", "category"), CATEGORIES)
def test_the_innermost_frame_that_tells_decides(stack: list[tuple[str, str]], category: str) -> None:
    assert category_of(tuple(CodeFrame(file, 1, function) for file, function in stack)) == category


def test_a_line_is_the_users_own() -> None:
    stack = tuple(CodeFrame(f["filename"], f["line"], f["name"]) for f in FORWARD)
    assert line_of(stack) == CodeFrame("/home/me/model.py", 12, "forward") and line_of(()) is None
    alone = CodeFrame(f"{TORCH}/nn/functional.py", 5, "relu")
    assert line_of((alone,)) == alone
