"""Collectives called from Python, and the creation of process groups.

C++ collectives (DDP buckets, FSDP) are in the trace and in the flight recorder; this adds names to what the script
itself calls and the time its training thread spent in the call.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from types import CodeType, FrameType, ModuleType
from typing import Any

from ddprof.capture.describe import nccl_log
from ddprof.capture.describe.stacks import script_frame
from ddprof.capture.files.call_log import described
from ddprof.capture.files.step import COLLECTIVE
from ddprof.capture.hub import Hub
from ddprof.capture.instruments.base import Instrumentor

_OPERATIONS = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "irecv",
    "isend",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "send",
)
# Older names that only call another operation of the list, where torch has both (2.13): one collective, counted once.
_RENAMED = {"all_gather_into_tensor": "all_gather_single", "reduce_scatter_tensor": "reduce_scatter_single"}
WAIT_RANGE = "ddprof::collective.wait"
_TENSORS = ("tensor", "input_tensor", "input", "output_tensor", "output", "tensor_list", "gather_list")
_PEERS = ("dst", "src", "group_dst", "group_src")
_COUNTING = ("gloo", "nccl")  # backends whose groups number their collectives
_MESSAGES = {"send": "send", "isend": "send", "recv": "recv", "irecv": "recv"}
_MAX_PLACES = 1024  # kept: places that call, times shapes
Place = tuple[str, Any, Any, int, int]  # group, shape, dtype, identity of the code that calls, where in it
_MODULE_CALLS = "torch.nn.modules"  # `_wrapped_call_impl` and the like, around the `forward` of any module
# The collective itself, and our wrapper around it, under whatever name this package was imported.
_COLLECTIVES = ("torch.distributed.distributed_c10d", "torch.distributed.c10d_logger", __name__.partition(".")[0] + ".")
_MAX_DEPTH = 40  # frames between a collective and the line of the script


class Collectives(Instrumentor):
    """Wraps the functions of torch.distributed in both modules that users import them from."""

    def __init__(self, hub: Hub) -> None:
        super().__init__(hub)
        self._calls = CallState()

    def _install(self, module: ModuleType) -> None:
        c10d: Any = sys.modules.get("torch.distributed.distributed_c10d")
        if c10d is None:
            return  # a build without distributed
        public: Any = sys.modules["torch.distributed"]
        for name in _OPERATIONS:
            original = getattr(c10d, name, None)
            if original is not None and not hasattr(c10d, _RENAMED.get(name, "")):
                self._replace((c10d, public), name, self._timed(original, name))
        work = getattr(c10d, "Work", None)
        if work is not None:
            self.patches.add(work, "wait", self._waiting(work.wait))
        self._replace((c10d, public), "init_process_group", self._announcing(c10d.init_process_group))

    def _replace(self, owners: tuple[Any, ...], name: str, replacement: Any) -> None:
        for owner in owners:
            if hasattr(owner, name):
                self.patches.add(owner, name, replacement)

    def _timed(self, original: Any, name: str) -> Any:
        begin, end, label = self.hub.begin, self.hub.end, f"ddprof::collective.{name}"
        record = CallRecord(self.hub, name, original, sys.modules["torch.distributed.distributed_c10d"], self._calls)
        enter, leave = self.hub.guard.wrap(record.enter), self.hub.guard.wrap(record.leave)
        is_compiling = sys.modules["torch"].compiler.is_compiling

        @functools.wraps(original)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return original(*args, **kwargs)
            token = begin(COLLECTIVE, label)  # first, so that what we do ourselves is no Python of the script
            at, raised = None, True
            try:
                at = enter(args, kwargs)
                result = original(*args, **kwargs)
                raised = False
                return result
            finally:
                leave(at, raised)
                end(COLLECTIVE, token)

        return timed

    def _waiting(self, original: Any) -> Any:
        """`Work.wait` as a part of its collective: what the call began, or FSDP, or a hook, ends here. The analysis
        knows the wait by this file's frame (analyzers/facts/script/tree.py): below it is no other in Python.
        """
        begin, end = self.hub.begin, self.hub.end

        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            token = begin(COLLECTIVE, WAIT_RANGE)
            try:
                return original(work, *args, **kwargs)
            finally:
                end(COLLECTIVE, token)

        return wait

    def _announcing(self, original: Any) -> Any:
        process_group_exists = self.hub.process_group_exists
        ask_nccl = self.hub.guard.wrap(self._ask_nccl)

        @functools.wraps(original)
        def init_process_group(*args: Any, **kwargs: Any) -> Any:
            ask_nccl(args[0] if args else kwargs.get("backend"))
            result = original(*args, **kwargs)
            process_group_exists()
            return result

        return init_process_group

    def _ask_nccl(self, backend: object) -> None:
        """Set NCCL's log before a process group is made: NCCL reads the settings at its first message."""
        journal, folder = self.hub.journal, self.hub.folder
        may_start = sys.modules["torch"].distributed.is_nccl_available() and (backend is None or "nccl" in str(backend))
        if may_start and journal.nccl_log is None:
            journal.nccl_log = self.hub.guard.attempt("NCCL's log", lambda: nccl_log.ask(folder, os.environ))


class CallState:
    """State shared by all operations, as a group counts all its calls together."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str, int], int] = {}  # calls so far, by group, kind and peer
        self.inside: set[int] = set()  # threads that are inside a message
        self.messages: dict[str, int] = {}  # so far, by group
        self.backends: dict[str, str] = {}  # by group: its only backend, which numbers its collectives; else ""


class CallRecord:
    """Books the calls of one operation in the session's log, if there is one."""

    def __init__(self, hub: Hub, name: str, original: Callable[..., Any], c10d: Any, state: CallState) -> None:
        self._hub = hub
        self._name = name
        self._c10d = c10d
        self._labels: Mapping[Any, str] = c10d._world.pg_names  # one mapping for the life of the process
        self._places: dict[Place, tuple[bytes, int, CodeType]] = {}
        self._state, self._numbers, self._inside = state, state.numbers, state.inside
        places = {parameter: at for at, parameter in enumerate(inspect.signature(original).parameters)}
        self._group = ("group", places.get("group", -1))
        self._tensor = next(((word, places[word]) for word in _TENSORS if word in places), None)
        self._peers = [(word, places[word]) for word in _PEERS if word in places] if name in _MESSAGES else []
        self._kind = _MESSAGES.get(name, "")

    def enter(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int | None:
        """Book the beginning of a call. Returns the argument of `leave`, None where nothing is booked."""
        log = self._hub.calls
        if log is None:
            return None
        group = _given(args, kwargs, self._group)
        group = self._c10d.GroupMember.WORLD if group is None else group
        label = self._labels.get(group)
        if label is None:  # this rank is no member of it
            return None
        peer = self._peer(args, kwargs)
        if self._kind and not self._first_inside():
            return None  # `send` calls `isend`: one message
        key = (label, self._kind, peer)
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        sequence = self._sequence(group, label)
        tensor = _given(args, kwargs, self._tensor) if self._tensor else None
        if isinstance(tensor, list | tuple):
            tensor = tensor[0] if tensor else None
        inner = sys._getframe(2)
        caller = script_frame(inner, _MAX_DEPTH) or inner
        # The line of a frame is looked up in a table of all lines of its function, and the hash of its code is made of
        # all that it holds: several microseconds each. So places are told by the identity of the code.
        shape, dtype = getattr(tensor, "shape", None), getattr(tensor, "dtype", None)
        place = (label, shape, dtype, id(caller.f_code), caller.f_lasti)
        entry = self._places.get(place) or self._describe(place, caller, inner)
        return log.enter(entry[0], number, peer, entry[1], time_ns(), sequence)

    def _sequence(self, group: Any, label: str) -> int:
        """The group's own number of the collective about to begin, one row with DDP's and FSDP's; 0 for a message and
        where the group has none.
        """
        state = self._state
        if self._kind:
            state.messages[label] = state.messages.get(label, 0) + 1
            return 0
        backend = state.backends.get(label)
        if backend is None:
            backends = {name.rpartition(":")[2] for name in str(self._c10d._world.pg_backend_config[group]).split(",")}
            backend = state.backends[label] = backends.pop() if len(backends) == 1 else ""
        if backend not in _COUNTING:
            return 0
        # Gloo counts messages in the same row, its flight recorder does not.
        return int(group._get_sequence_number_for_group()) + 1 - state.messages.get(label, 0) * (backend == "gloo")

    def _describe(self, place: Place, caller: FrameType, inner: FrameType) -> tuple[bytes, int, CodeType]:
        """Text, line and code object shared by all calls of one place with one shape; the code must live as long as its
        id is the key. `inner`: the frame that calls torch.distributed.
        """
        label, shape, dtype, _, _ = place
        code = caller.f_code
        size = "" if shape is None else ",".join(map(str, shape)) or "()"
        text = described((self._name, label, "" if dtype is None else str(dtype), size, code.co_filename, code.co_name))
        entry = (text, caller.f_lineno or 0, code)
        if len(self._places) < _MAX_PLACES:
            self._places[place] = entry
            through = _called_by(caller, inner)
            if through:
                self._hub.journal.through[code.co_filename, entry[1], self._name] = through
        return entry

    def _first_inside(self) -> bool:
        """True where this thread was not inside a message yet; marks it as inside."""
        thread = get_ident()
        if thread in self._inside:
            return False
        self._inside.add(thread)
        return True

    def leave(self, at: int | None, raised: bool) -> None:
        """Book the end of a call."""
        if at is not None and self._kind:
            self._inside.discard(get_ident())
        log = self._hub.calls
        if at is not None and log is not None:
            log.leave(at, -1 if raised else time_ns())

    def _peer(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
        """The other rank of a message; -1 for a collective, and where any rank may have sent it."""
        for place in self._peers:
            value = _given(args, kwargs, place)
            if isinstance(value, int):
                return value
        return -1


def _given(args: Sequence[Any], kwargs: Mapping[str, Any], place: tuple[str, int]) -> Any:
    name, at = place
    return args[at] if 0 <= at < len(args) else kwargs.get(name)


def _called_by(caller: FrameType, inner: FrameType) -> str:
    """The library function between the script's line and the collective, as "package function"; "" where the line calls
    the collective itself.
    """
    current: FrameType | None = inner
    outermost = None
    for _ in range(_MAX_DEPTH):
        if current is None or current is caller:
            break
        if not str(current.f_globals.get("__name__", "")).startswith(_MODULE_CALLS):
            outermost = current
        current = current.f_back
    if outermost is None:
        return ""
    module = str(outermost.f_globals.get("__name__", ""))
    if module.startswith(_COLLECTIVES):
        return ""
    return f"{module.partition('.')[0]} {outermost.f_code.co_name}"
