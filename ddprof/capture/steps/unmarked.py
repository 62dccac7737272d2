"""Steps of loops in which no torch optimizer steps: updates written by hand, `torch.func`, inference, embedding.

They are marked by repetition: of backward passes if there are any, else calls of the root module, else batches. A step
begins at the first batch fetched after one of these, or where no batches are fetched, at the next call of the root
module. As soon as an optimizer steps, optimizers mark the steps.

Once a job has created an optimizer, its first step is awaited: work before it (a sanity check, the evaluation of a
checkpoint) is no training step. A script can mark its steps itself: `ddprof.step()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddprof.capture.guard import Guard
from ddprof.capture.steps.tracker import in_main_thread

FETCHES, FORWARDS, BACKWARDS = 1, 2, 3  # how surely each tells a step, in rising order
KINDS = {FETCHES: "batches", FORWARDS: "calls of the model", BACKWARDS: "backward passes"}
# So often it must have happened before it marks steps: twice is a repetition; a loop without backward passes may still
# turn out to be a check before the training (Lightning's takes two batches).
_PATIENCE = {FETCHES: 32, FORWARDS: 8, BACKWARDS: 2}
_CALLS_PER_BATCH = 64  # so many on the first batch, or so many times more than on any batch so far: not one step
_MAX_MODULES = 64  # counted while the root module is not known


class UnmarkedSteps:
    """Marks steps by batches, module calls and backward passes until an optimizer steps. Its callers are guarded.

    `mark()` ends a step; `may_mark(kind)` must allow a kind before it marks steps; `root_found(module)` receives the
    module whose calls count.
    """

    def __init__(
        self,
        guard: Guard,
        mark: Callable[[], object],
        may_mark: Callable[[int], bool],
        root_found: Callable[[Any], object],
    ) -> None:
        self._mark = mark
        self._may_mark = may_mark
        self._root_found = root_found
        self.fetch_begins: Callable[[], object] = guard.wrap(self._fetch_begins)
        self.forward_begins: Callable[[Any], object] = guard.wrap(self._forward_begins)
        self.backward_ended: Callable[[], object] = guard.wrap(self._backward_ended)
        self.kind = 0  # what marks the steps now; 0: nothing yet
        self.under_way = False  # something has happened since the last mark
        self._optimizers = False
        self._refused = False
        self._seen = {FETCHES: 0, FORWARDS: 0, BACKWARDS: 0}
        self._calls: dict[int, int] = {}  # of each outermost module, by id
        self._root: int | None = None
        self._fetched = False  # since the last mark
        self._on_batch = 0  # what marks the steps, since the last fetch
        self._most_on_batch = 0

    def optimizer_made(self) -> None:
        """An optimizer exists: stop marking by repetition."""
        self._optimizers = True

    def _fetch_begins(self) -> None:
        """A batch is requested."""
        if not in_main_thread():
            return
        if self.kind and self.under_way:
            self._end_step()
        self._most_on_batch = max(self._most_on_batch, self._on_batch)
        self._on_batch = 0
        self._fetched = True
        self._happened(FETCHES)

    def _forward_begins(self, module: Any) -> None:
        """Handle an outermost module call."""
        if not in_main_thread():
            return
        if self._root is None:
            self._look_for_root(module)
        elif self._root == id(module):
            if self.kind and self.under_way and not self._batch_goes_on():
                self._end_step()
            self._happened(FORWARDS)

    def _backward_ended(self) -> None:
        """Handle the end of the outermost backward pass."""
        if in_main_thread():
            self._happened(BACKWARDS)

    def _look_for_root(self, module: Any) -> None:
        if len(self._calls) >= _MAX_MODULES and id(module) not in self._calls:
            return
        calls = self._calls[id(module)] = self._calls.get(id(module), 0) + 1
        if calls >= _PATIENCE[FORWARDS] or (calls >= _PATIENCE[BACKWARDS] and self._seen[BACKWARDS]):
            self._root = id(module)  # the first to be called so often: where a loop calls several, its first one
            self._seen[FORWARDS] = calls - 1
            self._calls.clear()
            self._root_found(module)
            self._happened(FORWARDS)

    def _happened(self, kind: int) -> None:
        self._seen[kind] += 1
        if kind > self.kind:
            self._consider(kind)
        if kind == self.kind:
            self.under_way = True
            self._on_batch += 1

    def _consider(self, kind: int) -> None:
        if self._optimizers or self._refused or self._seen[kind] < _PATIENCE[kind]:
            return
        if self._may_mark(kind):
            self.kind = kind
        else:
            self._refused = True

    def _batch_goes_on(self) -> bool:
        """True while the batch fetched last is still in use."""
        return self._fetched and self._on_batch < _CALLS_PER_BATCH * max(self._most_on_batch, 1)

    def _end_step(self) -> None:
        self._mark()
        self.under_way = False
        self._fetched = False
