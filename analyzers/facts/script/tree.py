"""The stacks of one rank as a call tree: callers of a frame, and the script line of a stack."""

from __future__ import annotations

import re
from collections import Counter
from functools import cached_property

import numpy as np

from ddprof.analyzers.facts.model import RankFacts
from ddprof.derived_once import remembered
from ddprof.intervals import Intervals, union
from ddprof.model import RankTrace
from ddprof.tables import NULL, Array, Table

# Frames of PyTorch under which a step's own work is issued, as "file function".
_MODULE_CALL = (
    r"torch/nn/modules/module\.py _(?:wrapped_)?call_impl$|torch/nn/parallel/distributed\.py forward$|torch/_functorch/"
    r"|torch/_dynamo/eval_frame\.py "
)
_BACKWARD = r"torch/(?:_tensor|autograd/(?:__init__|graph))\.py (?:backward|grad|_engine_run_backward)$|run_backward"
_OPTIMIZER = r"(?:torch/optim|bitsandbytes/optim|apex/optimizers)/(?!lr_scheduler|swa_utils)"
# No update: gradients emptied, which needs no time where they are dropped, and state read, loaded or made.
_NO_UPDATE_FRAME = re.compile(_OPTIMIZER + r"\S+ (?:zero_grad|(?:load_)?state_dict|add_param_group|__\w+__)$")
_BACKWARD_FRAME = re.compile(_BACKWARD + r"|deepspeed/runtime/\S+ backward$")
# What calls a hook of the script; torch's own frames come between for a Function's backward, or what is computed anew.
_HOOKED_BY = re.compile(r"torch/autograd/graph\.py _engine_run_backward$|run_backward|torch/utils/hooks\.py ")
_MODULE_HOOKED_BY = re.compile(r"torch/nn/modules/module\.py (?:_call_impl|inner)$")
_FORWARD_FRAME = re.compile(_MODULE_CALL + r"|deepspeed/runtime/\S+ forward$")
_OPTIMIZER_FRAME = re.compile(_OPTIMIZER + r"|deepspeed/runtime/\S+ step$")
# What PyTorch keeps its compiler out of (an optimizer's zero_grad, and more) passes through the compiler's frame, and
# is no call of a compiled function.
_COMPILED_FRAME, _DISABLED_BY = re.compile(r"torch/_dynamo/eval_frame\.py "), re.compile(r"torch/_compile\.py ")
_LOSS_FRAME = re.compile(
    r"torch/nn/functional\.py (?:\w*loss\w*|\w*cross_entropy\w*|kl_div)$|torch/nn/modules/loss\.py "
)
_LAYER_FRAME = re.compile(r"torch/nn/modules/(?!module|loss|container)\w+\.py forward$")
_TORCH = re.compile(r"^torch/")
# Sharded optimizers and checkpoints mostly copy, pickle and write; where they wait, a frame of communication is below.
_MEETING = re.compile(
    r"^(?:torch/(?:distributed/(?!optim/|checkpoint/)|autograd/graph\.py _engine_run_backward$)"
    r"|ddprof/capture/instruments/communication/)"
)
_ZEROING_FRAME = re.compile(r"torch/(?:optim|nn/modules)/\S+ zero_grad$")
_PROFILER_FRAME = re.compile(r"^(?:torch/profiler/|torch/autograd/profiler|torch/_dynamo/convert_frame|ddprof/)")


# Parts of the function around them, with frames of their own (until Python 3.12).
_INNER = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>")


class CallTree:
    """SCRIPT_STACKS with SCRIPT_FRAMES. Arrays are indexed by the row of a stack."""

    def __init__(self, stacks: Table, frames: Table) -> None:
        self.stacks, self.frames = stacks, frames
        self.frame: Array = stacks["frame"]
        self.outer: Array = np.where(stacks["outer"] == NULL, -1, stacks["outer"])

    def __len__(self) -> int:
        return len(self.stacks)

    @cached_property
    def names(self) -> list[str]:
        """ "file function" of each frame, for matching patterns; row of the frames table."""
        pairs = zip(self.frames["file"].tolist(), self.frames["function"].tolist(), strict=True)
        return [f"{file} {function}" for file, function in pairs]

    @cached_property
    def is_user(self) -> Array:
        """Mask of frames of the user's functions, by row of the frames table; comprehensions count as part of one."""
        return self.frames["is_user"].astype(bool) & ~np.isin(self.frames["function"].astype(str), _INNER)

    @cached_property
    def written(self) -> list[tuple[str, int, str]]:
        """File, line and function of each frame."""
        return list(zip(*(self.frames[name].tolist() for name in ("file", "line", "function")), strict=True))

    def words(self, frame: int) -> str:
        """A frame for people: "train.py:88 evaluate()"."""
        return written(*self.written[frame])

    @cached_property
    def folded(self) -> Array:
        """The stack that ends in each stack's innermost user frame; -1 without a user frame."""
        return self.called_from(~self.is_user[self.frame])

    @cached_property
    def outermost(self) -> Array:
        """The root stack of each stack."""
        return self.around(np.ones(len(self.frames), bool))

    @cached_property
    def function(self) -> Array:
        """One number per function for each frame, the same for all its lines. Row of the frames table."""
        return np.unique(self.names, return_inverse=True)[1] if self.names else np.empty(0, np.int64)

    @cached_property
    def is_profiler_frame(self) -> Array:
        """Mask of frames of the profiler or this tool, by row of the frames table."""
        return self.matching(_PROFILER_FRAME)

    @cached_property
    def is_profiler(self) -> Array:
        """Mask of stacks inside the profiler or this tool, except in user functions and passes that it times."""
        passes = (self.matching(pattern) for pattern in (_FORWARD_FRAME, _BACKWARD_FRAME, _OPTIMIZER_FRAME))
        return self._below_user(_PROFILER_FRAME, np.logical_or.reduce([*passes])[self.frame])

    @cached_property
    def in_phase(self) -> Array:
        """Mask of stacks inside a module's call, a backward pass or an optimizer."""
        return self.is_forward | self.is_backward | self.is_optimizer

    @cached_property
    def is_forward(self) -> Array:
        """Mask of stacks inside a module's call."""
        return self._outermost_in(self.matching(_FORWARD_FRAME)[self.frame] & ~self._is_uncompiled) >= 0

    @cached_property
    def is_loss(self) -> Array:
        """Mask of stacks inside a PyTorch loss function."""
        return self.within(self.matching(_LOSS_FRAME))

    @cached_property
    def is_criterion(self) -> Array:
        """Mask of stacks inside a loss: PyTorch's, or a module of the script that calls one and no layer."""
        has_loss, has_layer = self.around_any(self.is_loss), self.around_any(self.is_layer[self.frame])
        called = self._outermost_in(self.is_forward & self.is_user[self.frame])
        return np.asarray(self.is_loss | ((called >= 0) & (has_loss & ~has_layer)[called]))

    @cached_property
    def is_layer(self) -> Array:
        """Mask of frames in a layer of PyTorch's."""
        return self.matching(_LAYER_FRAME)

    @cached_property
    def is_zeroing(self) -> Array:
        """Mask of stacks inside an optimizer's or a model's `zero_grad`."""
        return self.within(self.matching(_ZEROING_FRAME))

    @cached_property
    def in_torch(self) -> Array:
        """Mask of stacks inside a torch call of the innermost user frame."""
        return self._below_user(_TORCH)

    @cached_property
    def meets(self) -> Array:
        """Mask of stacks in which the innermost user frame calls something that waits for other ranks."""
        return self._below_user(_MEETING)

    @cached_property
    def is_optimizer(self) -> Array:
        """Mask of stacks inside an optimizer, and not in a closure that it calls."""
        return self._under_optimizer & ~self.in_closure

    @cached_property
    def in_closure(self) -> Array:
        """Mask of stacks in functions that an optimizer calls for the passes of a step (`optimizer.step(closure)`): the
        script's or its framework's, and no part of the optimizer.
        """
        inside = self._under_optimizer
        passes = inside & (self.is_forward | self.is_backward)
        is_theirs = self.matching(_OPTIMIZER_FRAME) | self.matching(_TORCH)
        leads = self.around_any(passes) & inside & ~is_theirs[self.frame]
        return np.asarray(inside & self.within(np.isin(self.function, self.function[self.frame[leads]])))

    @cached_property
    def is_backward(self) -> Array:
        """Mask of stacks inside a backward pass."""
        return self.within(self.matching(_BACKWARD_FRAME))

    @cached_property
    def in_hook(self) -> Array:
        """Mask of stacks in hooks of the script that a pass calls, and not in an optimizer there.

        A module calls its hooks on other lines than `forward`, which sampled stacks tell apart.
        """
        caller = np.where(self.outer >= 0, self.frame[self.outer], len(self.frames))
        calls_forward = np.zeros(len(self.frames) + 1, bool)
        calls_forward[caller[(self.frames["function"] == "forward")[self.frame]]] = True
        by_module = np.append(self.matching(_MODULE_HOOKED_BY), False) & ~calls_forward
        by_backward = np.append(self.matching(_HOOKED_BY), False)
        is_hook = self.is_user[self.frame] & (by_module[caller] | (by_backward[caller] & self.is_backward))
        return np.asarray((self._outermost_in(is_hook) >= 0) & ~self._under_optimizer)

    @cached_property
    def trains(self) -> Array:
        """Mask of frames whose function runs a phase of the step (a loop, `main`), by row of the frames table."""
        runs_phase = np.zeros(len(self), bool)
        for level in reversed(self._levels):
            runs_phase[self.outer[level[runs_phase[level] | self.in_phase[level]]]] = True
        return np.asarray(np.isin(self.function, self.function[self.frame[runs_phase & ~self.in_phase]]))

    @cached_property
    def aside(self) -> Array:
        """The stack that ends in the outermost user function that runs no phase: the loop's call outside the phases.
        The loop's own line where the loop is innermost; -1 without a user frame.
        """
        outermost = self.around(self.is_user & ~self.trains)
        return np.where(outermost >= 0, outermost, self.folded)

    def matching(self, pattern: re.Pattern[str]) -> Array:
        """Mask of frames whose "file function" matches, by row of the frames table."""
        return np.array([pattern.search(name) is not None for name in self.names], bool)

    def within(self, is_frame: Array) -> Array:
        """Mask of stacks that contain one of these frames (bool, by row of the frames table)."""
        return self.around(is_frame) >= 0

    def around(self, is_frame: Array) -> Array:
        """The outermost ancestor of each stack that ends in one of these frames; -1 for none."""
        return self._outermost_in(is_frame[self.frame])

    def called_from(self, inside: Array) -> Array:
        """The innermost ancestor of each stack that is not one of these stacks (bool); -1 for none."""
        at = np.where(inside, -1, np.arange(len(self)))
        for level in self._levels:
            at[level] = np.where(inside[level], at[self.outer[level]], level)
        return at

    def caller(self, inside: Array) -> Array:
        """`called_from`, or the root of a stack that lies in these stacks altogether."""
        at = self.called_from(inside)
        return np.where(at >= 0, at, self.outermost)

    def around_any(self, is_stack: Array) -> Array:
        """Mask of these stacks (bool) and all around them."""
        return self.inclusive(is_stack.astype(float)) > 0

    def by_words(self, at: Array, amounts: Array) -> Counter[str]:
        """Amounts of stacks summed by the frame, in words, in which the stack `at` ends; without those of -1."""
        total: Counter[str] = Counter()
        for stack in np.flatnonzero(amounts * (at >= 0)).tolist():
            total[self.words(int(self.frame[at[stack]]))] += amounts[stack]
        return total

    def inclusive(self, own_ns: Array) -> Array:
        """Inclusive time of each stack from the self times."""
        total = own_ns.astype(float)
        for level in reversed(self._levels):
            np.add.at(total, self.outer[level], total[level])
        return total

    @cached_property
    def _under_optimizer(self) -> Array:
        """Mask of stacks that an optimizer's frame is part of, as it updates."""
        return self.within(self.matching(_OPTIMIZER_FRAME)) & ~self.within(self.matching(_NO_UPDATE_FRAME))

    @cached_property
    def _is_uncompiled(self) -> Array:
        """Mask of stacks that end in the compiler's frame around code excluded from compilation."""
        caller = self.frame[np.maximum(self.outer, 0)]
        by_wrapper = (self.outer >= 0) & self.matching(_DISABLED_BY)[caller]
        return np.asarray(self.matching(_COMPILED_FRAME)[self.frame] & by_wrapper)

    def _below_user(self, pattern: re.Pattern[str], but: Array | bool = False) -> Array:
        """Mask of stacks inside a frame of this name that their innermost user frame called, `but` inside these."""
        is_below, is_named = np.zeros(len(self), bool), self.matching(pattern)[self.frame]
        ends = (self.folded == np.arange(len(self))) | (~is_named & but)
        is_below[self.outer < 0] = is_named[self.outer < 0]
        for level in self._levels:
            is_below[level] = ~ends[level] & (is_named[level] | is_below[self.outer[level]])
        return is_below

    def _outermost_in(self, is_stack: Array) -> Array:
        """The outermost ancestor of each stack among these stacks (bool); -1 for none."""
        outermost = np.where(is_stack, np.arange(len(self)), -1)
        for level in self._levels:
            outer = outermost[self.outer[level]]
            outermost[level] = np.where(outer >= 0, outer, outermost[level])
        return outermost

    @cached_property
    def _levels(self) -> list[Array]:
        """Rows of the stacks by depth, from the second level inwards."""
        levels: list[Array] = []
        here = np.flatnonzero(self.outer < 0)
        while True:
            is_here = np.zeros(len(self) + 1, bool)
            is_here[here] = True
            here = np.flatnonzero(is_here[self.outer])  # outer -1 reads the last element, which is False
            if not len(here):
                return levels
            levels.append(here)


@remembered
def call_tree(rank: RankTrace | RankFacts) -> CallTree:
    """The call tree of a rank's trace or facts, made once for all that ask."""
    return CallTree(rank.script_stacks, rank.script_frames)


def spans_of(spans: Table, is_stack: Array) -> Intervals:
    """Intervals of a thread in one of these stacks (bool, by row); `spans`: SCRIPT_SPANS of one or more threads."""
    return union(*spans.bounds_of(is_stack[spans["stack"]]))


def written(file: str, line: int | None, function: str) -> str:
    """A function for people: "train.py:88 evaluate()"; its name alone where it has no file."""
    call = function if function.startswith("<") else f"{function}()"
    return f"{file}:{line} {call}" if file else call
