"""Ends of ranks: exceptions that are causes, separated from those due to a peer's end or absence."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from ddprof.slices.hangs.model import Call, RankEvidence, StackFrame, WorkerEvidence

# What gloo, NCCL, the store and c10d say when it is a peer that is gone or late.
_OF_A_PEER = re.compile(
    r"Connection (?:closed|reset)|Broken pipe|[Tt]im(?:ed|e) ?out|Watchdog caught|remote process exited|ncclRemoteError"
    r"|ncclSystemError|Connection refused|connection was (?:closed|aborted)|recvValue|sendBytes|failed to recv"
    r"|[Ss]ocket (?:closed|error)|NCCL communicator was aborted|The client socket"
)
_GLOO_TIMED_OUT = re.compile(r"Timed out waiting \d+ms for (?:recv|send) operation")
_PEER_TYPES = ("DistNetworkError", "DistStoreError", "DistBackendError")
# What c10d raises beside these. Others (ConnectionResetError) are of another connection, unless they quote it.
_C10D_TYPES = (*_PEER_TYPES, "DistError", "RuntimeError", "TimeoutError")
_QUOTES_C10D = re.compile(r"gloo|nccl|c10d|TCPStore|Watchdog caught|remote process exited|client socket", re.IGNORECASE)
# A call that a rank was inside when it was stopped is stuck if it had lasted this many times the longest time between
# two calls of that rank: three times what the job itself shows to be usual is no step of it.
LONG_WAIT = 3
LEAST_WAIT_NS = 1_000_000_000  # and no less than a second: what a launcher takes to end its ranks
INTERRUPTIONS = ("KeyboardInterrupt", "SignalException")  # wherever the rank is
_STORE = re.compile(r"DistStoreError|wait timeout after|keys: /|Timed out after .* waiting for clients|StoreTimeout")
_STORE_FUNCTIONS = {"_store_based_barrier", "store_based_barrier", "rendezvous", "_tcp_rendezvous_handler"} | {
    "_create_c10d_store",
    "_env_rendezvous_handler",
}
_STORE_LINE = re.compile(r"\bstore\.(?:wait|get|wait_for|multi_get|barrier)\(", re.IGNORECASE)
# What a stack shows of a rank that is inside a collective.
_OPERATIONS = {
    *("all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "all_to_all", "all_to_all_single"),
    *("barrier", "broadcast", "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "reduce"),
    *("reduce_scatter", "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "scatter_object_list", "send"),
    *("recv", "batch_isend_irecv", "all_gather_single"),
}
_LOADER = re.compile(r"torch/utils/data/dataloader\.py$")
_FETCHER = re.compile(r"torch/utils/data/_utils/fetch\.py$")
_DISTRIBUTED = re.compile(r"(?:torch/distributed/|^)distributed_c10d\.py$")


def is_own_error(evidence: RankEvidence) -> bool:
    """True where a rank ended with an exception that no peer's end or absence explains."""
    ending = evidence.ending
    if ending.how != "error" or ending.error in INTERRUPTIONS:
        return False
    if _is_of_loader(ending.frames[:1]):
        return True
    if ending.error not in _C10D_TYPES and not _QUOTES_C10D.search(ending.message):
        return True
    return ending.error not in _PEER_TYPES and not _OF_A_PEER.search(ending.message)


def waits_for_store(evidence: RankEvidence) -> bool:
    """True where a rank was waiting for a key of the store, or for its peers to join."""
    if _STORE.search(f"{evidence.ending.error}: {evidence.ending.message}"):
        return True
    frames = evidence.frames[:8]  # library frames between the wait and the script
    return any(frame.function in _STORE_FUNCTIONS or _STORE_LINE.search(frame.source) for frame in frames)


def stuck_workers(evidence: RankEvidence) -> list[WorkerEvidence]:
    """The loader workers that make a batch while their rank waits for its loader; [] where it does not wait."""
    if not _is_of_loader(evidence.frames):
        return []
    return [w for w in evidence.workers if any(_FETCHER.search(f.file.replace("\\", "/")) for f in w.frames)]


def _is_of_loader(frames: Sequence[StackFrame]) -> bool:
    return any(_LOADER.search(frame.file.replace("\\", "/")) for frame in frames)


def with_late_kills(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """The evidence, with ranks killed after the job had failed counted as ended by the failure.

    Gloo reports a lost peer at once: where the first failed rank had waited until its time-out or Ctrl-C, the peer was
    alive. So it was if seen after a rank had failed. Launchers kill processes that no signal ends.
    """
    failed = sorted(
        (e.ending.at_ns, e.ending.error, e.ending.message) for e in ranks if e.ending.how == "error" and e.ending.at_ns
    )
    if not failed:
        return list(ranks)
    first_ns, error, message = failed[0]
    in_vain = error == "KeyboardInterrupt" or _GLOO_TIMED_OUT.search(message) is not None
    return [
        replace(e, ending=replace(e.ending, how="ended"))
        if e.ending.how == "killed" and not e.ending.error and (in_vain or (e.seen_ns or 0) > first_ns)
        else e
        for e in ranks
    ]


def operation_in(evidence: RankEvidence) -> str:
    """The collective whose function is on the rank's stack; "" without one."""
    for frame in evidence.frames:
        if _DISTRIBUTED.search(frame.file.replace("\\", "/")) and frame.function in _OPERATIONS:
            return frame.function
    return ""


def with_failed_calls(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """The evidence, with the call in which a rank failed as unfinished: gloo retires such calls like any others."""
    # Or stopped inside a collective recorded as finished, as a peer was stopped before; in a backward pass that lasts,
    # where not all ranks are in one, and compute.
    lasting = [_is_in_backward(e) and waited_long(e) for e in ranks]
    waits = [lasts and not all(lasting) for lasts in lasting]
    return [
        _with_failed_call(e)
        if e.ending.how == "error" or (e.ending.how == "stopped" and bool(operation_in(e) or is_waiting))
        else e
        for e, is_waiting in zip(ranks, waits, strict=True)
    ]


def waited_long(evidence: RankEvidence) -> bool:
    """True where a rank was stopped much longer after its last call than its calls are apart."""
    times = sorted(call.entered_ns for call in evidence.calls if call.entered_ns)
    usual = max((later - earlier for earlier, later in pairwise(times)), default=0)
    return bool(times) and (evidence.seen_ns or 0) - times[-1] > max(LONG_WAIT * usual, LEAST_WAIT_NS)


def in_backward(evidence: RankEvidence) -> RankEvidence:
    """The evidence; in a backward pass, where no Python function calls collectives, its line is that of open calls."""
    if not _is_in_backward(evidence):
        return evidence
    calls = (call if call.done or call.frames else replace(call, frames=evidence.frames) for call in evidence.calls)
    return replace(evidence, calls=tuple(calls))


def _is_in_backward(evidence: RankEvidence) -> bool:
    return any(frame.function == "_engine_run_backward" for frame in evidence.frames)


def _with_failed_call(evidence: RankEvidence) -> RankEvidence:
    is_elsewhere = evidence.ending.error in INTERRUPTIONS and not _is_in_backward(evidence)
    tells_no_call = is_own_error(evidence) or is_elsewhere
    if not evidence.calls or (tells_no_call and not operation_in(evidence)) or waits_for_store(evidence):
        return evidence
    at = max(range(len(evidence.calls)), key=lambda at: (evidence.calls[at].entered_ns or 0, at))
    calls = list(evidence.calls)
    calls[at] = replace(calls[at], done=False)
    return replace(evidence, calls=tuple(calls))


def from_stacks(ranks: Sequence[RankEvidence]) -> list[RankEvidence]:
    """Evidence without any recorded calls: the calls that stacks show, as of one group."""
    if any(e.has_calls for e in ranks) or not any(operation_in(e) for e in ranks):
        return list(ranks)
    with_calls = []
    for e in ranks:
        op = operation_in(e)
        calls = (Call("", 1, op, done=False, frames=e.frames),) if op else ()
        with_calls.append(replace(e, calls=calls, has_calls=bool(e.frames)))
    return with_calls
