"""The command for Nsight Compute matches its kernel and nothing else, in the shell and as an expression."""

from __future__ import annotations

import itertools
import re
import shlex

from ddprof.analyzers.kernel_table.ncu import WARM_UP_STEPS, ncu_command

KERNEL = "void at::native::elementwise_kernel<128, 4, f(int)::{lambda(int)#1}>(int, f(int)::{lambda(int)#1})"


def test_one_step_of_the_kernel_is_profiled() -> None:
    words = shlex.split(ncu_command(KERNEL, 24.0, "torchrun train.py"))
    assert words[0] == "ncu" and words[-2:] == ["torchrun", "train.py"]
    option = dict(itertools.pairwise(words))
    assert option["--launch-skip"] == str(24 * WARM_UP_STEPS) and option["--launch-count"] == "24"
    kind, _, expression = option["--kernel-name"].partition(":")
    assert kind == "regex"
    assert re.search(expression, KERNEL)
    assert not re.search(expression, KERNEL.replace("128", "256")) and not re.search(expression, f"{KERNEL} x")


def test_a_kernel_that_few_steps_call_is_profiled_once() -> None:
    assert "--launch-count 1 " in ncu_command("k", 0.2, "python train.py")
