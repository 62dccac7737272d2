"""Collectives and sends as ProcessGroupNCCL issues and the profiler records them."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.oracle.device import DeviceOp
from benchmarks.oracle.rank import COMPUTE, Rank

COMM_STREAMS = {"world": 1, "dp": 1, "shard": 1, "tp": 2, "ep": 2, "pp": 3, "replicate": 4}
MESSAGE_STREAMS = {(False, True): 3, (True, True): 4, (False, False): 5, (True, False): 6}  # (sends, forward)
OPERATORS = {
    "allreduce": "c10d::allreduce_",
    "_allgather_base": "c10d::_allgather_base_",
    "_reduce_scatter_base": "c10d::_reduce_scatter_base_",
    "broadcast": "c10d::broadcast_",
    "barrier": "c10d::barrier",
    "all_to_allv": "c10d::alltoall_base_",
    "send": "c10d::send",
    "recv": "c10d::recv_",
}
ANNOTATIONS = {
    "allreduce": "nccl:all_reduce",
    "_allgather_base": "nccl:_all_gather_base",
    "_reduce_scatter_base": "nccl:_reduce_scatter_base",
    "broadcast": "nccl:broadcast",
    "barrier": "nccl:all_reduce_barrier",
    "all_to_allv": "nccl:all_to_all",
}
ELEMENT_BYTES = {"BFloat16": 2, "Float": 4}


@dataclass(frozen=True)
class CommArgs:
    """Arguments of one call in the trace. `annotation` is the range that the NCCL work runs under."""

    collective: str
    annotation: str
    in_elems: int
    out_elems: int
    dtype: str
    group_name: str
    group_desc: str
    ranks: tuple[int, ...]
    seq: int | None
    peer: tuple[str, int] | None = None  # ("Dst Rank" | "Src Rank", rank)


def collective(
    rank: Rank,
    role: str,
    kind: str,
    elems: int,
    dtype: str = "BFloat16",
    after: DeviceOp | None = None,
    call: str = "",
) -> DeviceOp | None:
    """Issue a collective on the group of `role`; `elems` is the full buffer. None when the group has one member.

    It waits for the compute issued so far, and for `after` where that is given. `call`: what the script called, where
    that is not the kind of its kernel.
    """
    group = rank.group(role)
    members = len(group.ranks)
    if members < 2 or rank.world.rendezvous == "instead":
        return None
    index = rank.calls(group.name)
    meeting = rank.meeting.join(group.name, index, kind, elems * ELEMENT_BYTES[dtype], group.ranks)
    shard = elems // members
    in_elems = shard if kind == "_allgather_base" else elems
    out_elems = shard if kind == "_reduce_scatter_base" else elems
    args = CommArgs(
        call or kind,
        ANNOTATIONS[call or kind],
        in_elems,
        out_elems,
        dtype,
        group.name,
        group.desc,
        group.ranks,
        13 + index,
    )
    op = DeviceOp(rank.rank, COMM_STREAMS[role], "comm", kind, 0.0)
    op.collective, op.args = meeting, args
    op.deps = (after,) if after is not None else ()
    _issue(rank, op, args, rank.operator_us(4.4))
    return op


def exchange(rank: Rank, peer: int, sends: bool, receives: bool, elems: int) -> DeviceOp:
    """Send to and/or receive from a pipeline neighbour as one batch; both sides' kernels meet."""
    group = rank.group("pp")
    low, high = sorted((rank.rank, peer))
    channel = f"{group.name}:{low}-{high}"
    meeting = rank.meeting.join(channel, rank.calls(channel), "send", elems * 2.0, (low, high))
    both = sends and receives
    kind = "recv" if receives else "send"
    note = (
        "nccl:coalesced"
        if both
        else (f"nccl:recv {rank.rank}<-{peer}" if receives else f"nccl:send {rank.rank}->{peer}")
    )
    args = CommArgs(
        kind, note, elems, elems, "BFloat16", group.name, group.desc, group.ranks, None,
        ("Src Rank" if receives else "Dst Rank", peer),
    )  # fmt: skip
    if both:
        _record_silent_send(rank, args, peer)
    op = DeviceOp(rank.rank, COMM_STREAMS["pp"], "comm", "sendrecv", 0.0)
    op.collective, op.args = meeting, args
    _issue(rank, op, args, rank.operator_us(2.8))
    return op


def message(rank: Rank, peer: int, sends: bool, forward: bool, elems: int) -> DeviceOp:
    """One message to or from a pipeline neighbour, on a stream per direction, as interleaved schedules send them."""
    group = rank.group("pp")
    source, target = (rank.rank, peer) if sends else (peer, rank.rank)
    channel = f"{group.name}:{source}>{target}:{'forward' if forward else 'backward'}"
    low, high = sorted((rank.rank, peer))
    meeting = rank.meeting.join(channel, rank.calls(channel), "send", elems * 2.0, (low, high))
    kind = "send" if sends else "recv"
    note = f"nccl:send {source}->{target}" if sends else f"nccl:recv {target}<-{source}"
    args = CommArgs(
        kind, note, elems, elems, "BFloat16", group.name, group.desc, group.ranks, None,
        ("Dst Rank" if sends else "Src Rank", peer),
    )  # fmt: skip
    op = DeviceOp(rank.rank, MESSAGE_STREAMS[(sends, forward)], "comm", "sendrecv", 0.0)
    op.collective, op.args = meeting, args
    _issue(rank, op, args, rank.operator_us(2.8))
    return op


def _record_silent_send(rank: Rank, args: CommArgs, peer: int) -> None:
    """The first half of a coalesced pair: recorded on the host, its kernel belongs to the second half."""
    start, cost = rank.t, rank.operator_us(0.9)
    given = CommArgs(
        "send", "", args.in_elems, args.out_elems, args.dtype, args.group_name, args.group_desc, args.ranks, None,
        ("Dst Rank", peer),
    )  # fmt: skip
    rank.record("cpu_op", OPERATORS["send"], start, start + cost, ("comm_dims", given))
    rank.record("cpu_op", "record_param_comms", start + 0.25 * cost, start + cost * 0.85, ("comm", given))
    rank.t = start + cost


def _issue(rank: Rank, op: DeviceOp, args: CommArgs, cost: float) -> None:
    start = rank.t
    inner = start + 0.08 * cost
    rank.record("cpu_op", OPERATORS[args.collective], start, start + cost, ("comm_dims", args))
    external = rank.record("cpu_op", "record_param_comms", inner, start + cost - 0.3, ("comm", args))
    tick = 0.018 * cost
    rank.runtime("cudaEventRecord", inner + tick, tick, external)
    rank.runtime("cudaStreamWaitEvent", inner + 2.1 * tick, tick, external)
    rank.record("user_annotation", args.annotation, inner + 3.2 * tick, start + cost - 0.6, ("comm_dims", args))
    call, call_us = start + 0.58 * cost, 0.15 * cost
    op.correlation = rank.runtime("launch:nccl", call, call_us, external)
    before = rank.last_on(COMPUTE)
    if before is not None:
        op.deps += (before,)
    rank.submit(op, call, call + call_us, external)
    rank.t = start + cost
