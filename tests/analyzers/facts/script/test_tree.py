"""The tree of calls: what lies around a frame, and whose line a stack is of."""

import re

import numpy as np

from ddprof.analyzers.facts.script.tree import CallTree, spans_of
from ddprof.readers.script.stacks import Script, traced_script

NESTED = (
    (0, 100, "train.py(9): main"),
    (10, 60, "torch/nn/modules/module.py(1): _wrapped_call_impl"),
    (20, 50, "model.py(5): forward"),
    (30, 40, "numpy/core/numeric.py(2): dot"),
    (70, 90, "torch/_tensor.py(3): backward"),
)


def script_of(frames: tuple[tuple[int, int, str], ...]) -> Script:
    """The script of one thread that was in these frames (start, end, name)."""
    starts, ends, names = zip(*frames, strict=True)
    start, track = np.array(starts), np.zeros(len(frames), np.int64)
    return traced_script(track, start, np.array(ends) - start, np.arange(len(frames)), list(names))


def tree_of(*frames: tuple[int, int, str]) -> tuple[CallTree, dict[str, int]]:
    script = script_of(frames)
    tree = CallTree(script.stacks, script.frames)
    return tree, {tree.written[frame][2]: stack for stack, frame in enumerate(tree.frame.tolist())}


def test_a_tree_folds_libraries_and_tells_phases_frames_and_times() -> None:
    tree, at = tree_of(*NESTED)
    assert tree.folded[at["dot"]] == at["forward"] == tree.folded[at["forward"]]
    assert tree.folded[at["_wrapped_call_impl"]] == at["main"]
    assert {name for name, stack in at.items() if not tree.in_phase[stack]} == {"main"}
    assert {name for name, stack in at.items() if tree.is_backward[stack]} == {"backward"}
    around = tree.around(tree.matching(re.compile(r"model\.py|numpy")))
    assert around[at["dot"]] == around[at["forward"]] == at["forward"] and around[at["main"]] == -1
    total = tree.inclusive(np.array([{"dot": 3.0, "backward": 4.0}.get(name, 0.0) for name in at]))
    assert (total[at["forward"]], total[at["main"]], total[at["dot"]]) == (3.0, 7.0, 3.0)
    assert [part.tolist() for part in spans_of(script_of(NESTED).spans, tree.in_phase)] == [[10, 70], [60, 90]]


def test_what_the_compiler_is_kept_out_of_is_no_phase() -> None:
    tree, at = tree_of(
        (0, 100, "train.py(9): main"),
        (10, 40, "torch/_compile.py(54): inner"),
        (11, 39, "torch/_dynamo/eval_frame.py(1000): _fn"),
        (12, 38, "torch/optim/optimizer.py(1069): zero_grad"),
        (50, 90, "torch/_dynamo/eval_frame.py(700): compiled_fn"),
        (55, 80, "model.py(5): forward"),
    )
    assert not tree.in_phase[at["zero_grad"]] and not tree.is_forward[at["_fn"]]
    assert tree.in_phase[at["forward"]] and tree.is_forward[at["forward"]]


def test_an_optimizer_whose_state_is_read_updates_nothing() -> None:
    """A copy of all state before each step: the function around it trains nothing."""
    tree, at = tree_of(
        (0, 100, "guard.py(16): train"),
        (5, 40, "guard.py(8): before"),
        (10, 30, "torch/optim/optimizer.py(755): state_dict"),
        (11, 29, "torch/optim/optimizer.py(743): pack_group"),
        (50, 90, "torch/optim/optimizer.py(530): wrapper"),
        (55, 80, "torch/optim/adam.py(247): step"),
    )
    assert [name for name, stack in at.items() if tree.is_optimizer[stack]] == ["wrapper", "step"]


def test_what_a_wrapped_pass_calls_of_the_users_is_neither_the_profilers_nor_torchs() -> None:
    tree, at = tree_of(
        (0, 100, "train.py(9): main"),
        (5, 60, "ddprof/capture/instruments/training/replicas.py(4): timed"),
        (10, 60, "torch/nn/modules/module.py(1): _wrapped_call_impl"),
        (20, 50, "model.py(5): forward"),
        (25, 28, "torch/nn/modules/linear.py(7): linear"),
        (30, 40, "json/encoder.py(2): encode"),
        (70, 90, "torch/profiler/profiler.py(3): step"),
    )
    assert {name for name, stack in at.items() if tree.is_profiler[stack]} == {"timed", "step"}
    assert {name for name, stack in at.items() if tree.in_torch[stack]} == {"_wrapped_call_impl", "linear", "step"}


def test_a_hook_is_what_a_backward_pass_calls_of_the_script_itself() -> None:
    tree, at = tree_of(
        (0, 100, "torch/autograd/graph.py(979): _engine_run_backward"),
        (5, 20, "train.py(12): on_gradient"),
        (6, 15, "torch/functional.py(1866): norm"),
        (30, 50, "torch/utils/checkpoint.py(1100): unpack_hook"),
        (31, 49, "model.py(7): forward"),
        (60, 80, "train.py(20): step_early"),
        (61, 79, "torch/optim/sgd.py(120): step"),
    )
    assert {name for name, stack in at.items() if tree.in_hook[stack]} == {"on_gradient", "norm", "step_early"}


def test_a_hook_of_a_module_is_called_on_another_line_than_its_forward() -> None:
    tree, at = tree_of(
        (0, 100, "torch/nn/modules/module.py(1832): inner"),
        (5, 40, "model.py(12): forward"),
        (6, 30, "torch/nn/modules/module.py(1789): _call_impl"),
        (7, 20, "lora.py(3): patched"),
        (21, 29, "torch/nn/modules/linear.py(134): forward"),
        (110, 200, "torch/nn/modules/module.py(1845): inner"),
        (120, 190, "train.py(20): histogram"),
    )
    assert {name for name, stack in at.items() if tree.in_hook[stack]} == {"histogram"}
