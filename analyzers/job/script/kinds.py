"""Kinds of script lines by what they call: library functions, and operators on the host.

Each kind has a fix and the share of time that remains after it. Operators identify a function better than its name: a
moving average reads and writes every parameter and reduces none, statistics reduce every one, clipping does both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from ddprof.analyzers.facts.model import Phase, RankFacts
from ddprof.analyzers.facts.script.phases import call_of
from ddprof.analyzers.facts.script.prepared import CARRIES, MAKES_BATCHES
from ddprof.analyzers.facts.script.tree import call_tree
from ddprof.tables import NULL, Array

MANY = 60  # operators per step: one call for all tensors (foreach, fused) is a few dozen at most (torch.optim)
MOST = 0.5  # of the time or of the operators of a line: what it is for

TUNING_GUIDE = "PyTorch performance tuning guide"


class LineKind(Struct, frozen=True):
    """The fix for a kind of line. `suggested` "": none, as its time cannot be reduced.

    `keeps_one`: one operator per tensor is left of its time; else nothing is.
    """

    name: str
    suggested: str = ""
    patch: str | None = None
    source: str = TUNING_GUIDE
    keeps_one: bool = False


ARITHMETIC = LineKind(
    "arithmetic, tensor by tensor",
    "one call for all tensors per operation",
    "torch._foreach_lerp_(averaged, list(model.parameters()), 1 - decay)"
    "  # a moving average; for others _foreach_add_, _foreach_mul_, ...",
    "torch.optim documentation (foreach)",
    keeps_one=True,
)
UPDATE = LineKind(
    "an update of the parameters, tensor by tensor",
    "update all tensors in one call per operation",
    "torch._foreach_mul_(moments, beta)\n"
    "torch._foreach_add_(moments, gradients, alpha=1 - beta)\n"
    "torch._foreach_add_(parameters, moments, alpha=-lr)  # as torch.optim does with foreach=True",
    "torch.optim documentation (foreach)",
    keeps_one=True,
)
CLIP = LineKind(
    "clipping, tensor by tensor",
    "clip all gradients in one call, without reading the norm",
    "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, foreach=True)",
    "torch.nn.utils.clip_grad_norm_ documentation",
    keeps_one=True,
)
ZEROING = LineKind(
    "gradients filled with zeros",
    "drop gradients instead of filling them",
    "optimizer.zero_grad(set_to_none=True)",
    "torch.optim.Optimizer.zero_grad documentation",
)
STATISTICS = LineKind(
    "statistics, tensor by tensor",
    "every N steps, for all tensors in one call",
    "if step % 100 == 0: norms = torch._foreach_norm(list(model.parameters()))",
)
PREPARING = LineKind(
    "making batches",
    "in the workers of a DataLoader (__getitem__ or collate_fn), or once before training",
    "DataLoader(dataset, collate_fn=prepare, num_workers=4, prefetch_factor=4, persistent_workers=True)",
    "torch.utils.data.DataLoader documentation",
)
LOGGING = LineKind(
    "writing or sending records",
    "every N steps, or handed to a thread that writes and sends",
    "log = logging.handlers.QueueHandler(records)  # and QueueListener(records, slow_handler) in a thread\n"
    "if step % 100 == 0: log.handle(record)",
    "Python documentation: logging.handlers.QueueHandler",
)
METRICS = LineKind(
    "metrics",
    "gather on the device, read and log every N steps",
    "total += loss.detach()  # and only `if step % 100 == 0: log(total.item())`",
)
OTHER = LineKind("Python code", "run it every N steps, for all tensors at once, or outside the training thread")
OF_MODEL = LineKind(
    "Python code of the model",
    "fewer, larger operators in place of Python; what the inputs alone decide comes with the batch",
)
NEEDED = LineKind("already one call for all tensors, or part of every step")

_CLIPS = re.compile(r"torch/nn/utils/clip_grad\.py ")
_TORCHS_OWN = re.compile(r"^torch/optim/lr_scheduler\.py |^torch/amp/|^torch/cuda/amp/|^torch/distributed/")
# By "file function" of library frames, and by built-ins as a trace names them. The first that holds MOST of a line's
# time counts.
_CALLS = (
    (_CLIPS, CLIP),
    (
        re.compile(
            r"^(?:logging/|tqdm/|rich/|wandb/|mlflow/|tensorboardX?/|torch/utils/tensorboard/|requests/|urllib3/"
            r"|http/client\.py|httpx/|smtplib\.py|socket\.py |ssl\.py |json/__init__\.py dump$|csv\.py |sqlite3/|redis/"
            r"|boto3/|botocore/|paramiko/|print|loguru/|structlog/|comet_ml/|neptune/|clearml/|aim/)"
            r"|<built-in (?:function (?:print|fsync)>|method (?:write|flush|writerow|send\w*|recv\w*|execute|commit) )"
        ),
        LOGGING,
    ),
    (_TORCHS_OWN, NEEDED),
)
_POINTWISE = re.compile(
    r"^aten::(?:mul|add|sub|rsub|div|lerp|copy|addcmul|addcdiv|sqrt|rsqrt|reciprocal|neg|sign|pow|square|exp|clamp\w*"
    r"|clone|zeros_like|where|sigmoid|tanh|maximum|minimum)_?$"
)
_REDUCES = re.compile(
    r"^aten::(?:norm|linalg_vector_norm|linalg_norm|mean|std|var|std_mean|var_mean|sum|max|min|abs|amax|amin|aminmax|any|all"
    r"|median|quantile|histc|histogram|isnan|isinf|isfinite|item|_local_scalar_dense|is_nonzero|gt|lt|ge|le|ne|eq|count_nonzero)$"
)
_NORMS = re.compile(r"^aten::(?:norm|linalg_vector_norm|linalg_norm|sum)$")
_SCALES = re.compile(r"^aten::(?:mul_|div_|clamp_\w*|clamp_|copy_)$")
_ZEROES = re.compile(r"^aten::(?:zero_|fill_|_foreach_zero_)$")
_AT_ONCE = re.compile(r"^aten::_(?:foreach|fused)_")
# Where neither says it: by the words in the names of functions. The first that matches holds.
_NAMES = (
    (re.compile(r"(^|_)ema(_|\b)|moving_?average|polyak|target_net|soft_update", re.I), ARITHMETIC),
    (re.compile(r"clip_grad|grad_?norm", re.I), CLIP),
    (re.compile(r"zero_?grad", re.I), ZEROING),
    (re.compile(r"statistic|histogram|param_?norm|weight_?norm|(^|_)stats?(_|\b)|monitor", re.I), STATISTICS),
    (re.compile(r"(^|_)log(_|\b)|logging|progress|tqdm|print|report", re.I), LOGGING),
    (re.compile(r"metric|accuracy", re.I), METRICS),
)


class LineKinds:
    """Calls of one rank's training thread outside the phases, by kind."""

    def __init__(self, facts: RankFacts) -> None:
        self._tree = call_tree(facts)
        self._called = call_of(self._tree)
        self._operators = facts.script_operators
        has_stack = self._operators["stack"] != NULL
        self._call_of_operator = np.where(has_stack, self._called[np.where(has_stack, self._operators["stack"], 0)], -1)
        self._names = [facts.strings[name] for name in self._operators["name"].tolist()]
        self._steps = len(facts.steps)
        self._optimizes = bool(self._tree.is_optimizer.any()) or len(facts.phase_time(Phase.OPTIMIZER)[0]) > 0

    def of(self, stacks: Array, time_ns: Array) -> LineKind:
        """The kind of a line, from the stacks (rows) that its time is in."""
        by_call = self._by_call(stacks, time_ns)
        in_model = self._tree.is_forward[np.maximum(self._tree.folded, 0)] & ~self._tree.in_hook
        if by_call is None and time_ns[in_model[stacks]].sum() > MOST * time_ns.sum():
            return OF_MODEL
        kind = self._clipping(stacks) if by_call is CLIP else by_call or self._by_operators(self._rows(stacks))
        if kind is not None:
            return kind
        functions = {self._tree.frames["function"][self._tree.frame[stack]] for stack in self._around(stacks)}
        text = " ".join(sorted(functions))
        return next((kind for pattern, kind in _NAMES if pattern.search(text)), OTHER)

    def needed(self) -> Array:
        """Mask of stacks whose call cannot be reduced: all tensors at once, a scheduler's step; shape (stacks,)."""
        is_needed = np.zeros(len(self._tree), bool)
        user = np.maximum(self._tree.folded, 0)
        in_pass = self._tree.is_forward[user] | self._tree.is_backward[user]
        beside = ~self._operators["in_optimizer"].astype(bool)
        for call in np.unique(self._called[self._called >= 0]).tolist():
            # Operators of no known call, and those of the optimizer in the loop, say nothing about this one.
            if self._by_operators(np.flatnonzero(beside & (self._call_of_operator == call))) is NEEDED:
                stacks = np.flatnonzero(self._called == call)
                is_needed[stacks] = ~in_pass[stacks]
        clipping = self._tree.within(self._tree.matching(_CLIPS))
        if clipping.any() and self._clipping(np.flatnonzero(clipping)) is NEEDED:
            is_needed |= clipping
        return is_needed | self._by_torch() | self._emptying()

    def updates_each(self) -> bool:
        """True where the optimizer's step calls small operators per tensor instead of one for all."""
        return self._by_operators(np.flatnonzero(self._operators["in_optimizer"].astype(bool))) is UPDATE

    def left(self, kind: LineKind, stacks: Array, time_ns: float) -> float:
        """Share of a line's time that remains after its fix: one operator per tensor where its kind keeps one."""
        if not kind.keeps_one or time_ns <= 0:
            return 0.0
        rows = self._rows(stacks)
        count, spent = self._operators["count"][rows], self._operators["time_ns"][rows]
        if not len(rows):
            return 0.0
        tensors = int(np.bincount(self._operators["name"][rows], weights=count).max())
        return float(min(0.5, tensors * spent.sum() / max(1, count.sum()) / time_ns))

    def _rows(self, stacks: Array) -> Array:
        """Rows of the operators of a line: of its call of the loop; where few are known to be, of all in its phase."""
        in_optimizer = bool(self._tree.is_optimizer[stacks].any())
        here = self._operators["in_optimizer"].astype(bool) == in_optimizer
        of_call = here & np.isin(self._call_of_operator, np.unique(self._called[stacks]))
        count = self._operators["count"]
        is_known = count[of_call].sum() >= count[here & (self._call_of_operator < 0)].sum()
        return np.flatnonzero(of_call if is_known else here)

    def _clipping(self, stacks: Array) -> LineKind:
        """The kind of a library's clipping. Operators that do not clip are those of other lines between the phases."""
        kind = self._by_operators(self._rows(stacks))
        return kind if kind in (CLIP, STATISTICS) else NEEDED

    def _emptying(self) -> Array:
        """Stacks in an optimizer's or a model's `zero_grad` that fills nothing."""
        inside = self._tree.is_zeroing
        beside = np.flatnonzero(~self._operators["in_optimizer"].astype(bool)).tolist()
        return inside if not any(_ZEROES.search(self._names[row]) for row in beside) else np.zeros_like(inside)

    def _by_operators(self, rows: Array) -> LineKind | None:
        """The kind by the operators of these rows of SCRIPT_OPERATORS that compute; None where they do not identify it.

        Detached parameters are handed to one call for all of them just as to a call for each.
        """
        rows = rows[[CARRIES.search(self._names[row]) is None for row in rows.tolist()]] if len(rows) else rows
        if not len(rows):
            return None
        count = self._operators["count"][rows] / self._steps
        time_ns = self._operators["time_ns"][rows]
        names = [self._names[row] for row in rows.tolist()]

        def share(pattern: re.Pattern[str], of: Array) -> float:
            return float(of[_which(pattern, names)].sum() / max(float(of.sum()), 1e-9))

        if share(_ZEROES, time_ns) > MOST:
            return ZEROING
        if share(_AT_ONCE, time_ns) > MOST:
            return NEEDED
        if share(MAKES_BATCHES, time_ns) > MOST and (self._call_of_operator[rows] >= 0).all():
            return PREPARING
        if count.sum() < MANY:
            return None
        scaled, norms = count[_which(_SCALES, names)].sum(), count[_which(_NORMS, names)].sum()
        if norms >= MANY / 4 and 0 < scaled <= 2 * norms and share(_REDUCES, count) > MOST / 2:
            return CLIP
        if share(_REDUCES, count) > MOST:
            return STATISTICS
        if share(_POINTWISE, count) > MOST:
            in_optimizer = time_ns[self._operators["in_optimizer"][rows].astype(bool)].sum() > MOST * time_ns.sum()
            return UPDATE if in_optimizer or not self._optimizes else ARITHMETIC
        return None

    def _by_torch(self) -> Array:
        """Stacks in what PyTorch does in every step (`_TORCHS_OWN`), but for functions of the user's that it calls
        there: a scheduler computes what its `get_lr` does. Shape (stacks,)."""
        inside, user = self._tree.within(self._tree.matching(_TORCHS_OWN)), self._tree.folded
        return np.asarray(inside & ~((user >= 0) & inside[np.maximum(user, 0)]))

    def _by_call(self, stacks: Array, time_ns: Array) -> LineKind | None:
        """The kind by library frames on the way to the stacks with most of the time; None for none."""
        for pattern, kind in _CALLS:
            within = self._by_torch() if kind is NEEDED else self._tree.within(self._tree.matching(pattern))
            if time_ns[within[stacks]].sum() > MOST * time_ns.sum():
                return kind
        return None

    def _around(self, stacks: Array) -> set[int]:
        """The stacks and their ancestors, from the loop's call inwards."""
        around: set[int] = set()
        outermost = set(self._tree.aside[stacks].tolist())
        for stack in stacks.tolist():
            while stack >= 0 and stack not in around:
                around.add(stack)
                if stack in outermost:
                    break
                stack = int(self._tree.outer[stack])
        return around


def _which(pattern: re.Pattern[str], names: Iterable[str]) -> Array:
    return np.array([pattern.search(name) is not None for name in names], bool)
