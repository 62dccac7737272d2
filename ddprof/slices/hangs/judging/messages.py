"""Messages between two ranks (pipelines): awaited but not sent, or sent but not received."""

from __future__ import annotations

from collections.abc import Sequence

from ddprof.slices.hangs.evidence import Call, RankEvidence
from ddprof.slices.hangs.judging.frames import user_frame
from ddprof.slices.hangs.model import Stuck, Variant

Ends = tuple[str, int, int]  # group, sender, receiver


def stuck_messages(ranks: Sequence[RankEvidence]) -> list[Stuck]:
    """The first message of each pair of ranks that does not arrive; messages of a pair arrive in order."""
    sent, awaited = _numbered(ranks)
    recorded = {e.rank for e in ranks if e.has_calls}
    messages = []
    for ends in sorted({*sent, *awaited}):
        _, sender, receiver = ends
        if sender in recorded and receiver in recorded:
            stuck = _first_stuck(ends, sent.get(ends, {}), awaited.get(ends, {}))
            messages += [stuck] if stuck else []
    return messages


def _numbered(ranks: Sequence[RankEvidence]) -> tuple[dict[Ends, dict[int, Call]], dict[Ends, dict[int, Call]]]:
    sent: dict[Ends, dict[int, Call]] = {}
    awaited: dict[Ends, dict[int, Call]] = {}
    for evidence in ranks:
        for call in evidence.calls:
            if call.peer is None:
                continue
            if call.op.endswith("send"):
                sent.setdefault((call.group, evidence.rank, call.peer), {})[call.number] = call
            else:
                awaited.setdefault((call.group, call.peer, evidence.rank), {})[call.number] = call
    return sent, awaited


def _first_stuck(ends: Ends, sent: dict[int, Call], awaited: dict[int, Call]) -> Stuck | None:
    group, sender, receiver = ends
    for number in sorted({*sent, *awaited}):
        send, receive = sent.get(number), awaited.get(number)
        if receive and not send and number > max(sent, default=0):
            return _stuck(group, receive, receiver, sender)
        if send and not receive and not send.done and number > max(awaited, default=0):
            return _stuck(group, send, sender, receiver)
        if send and receive and _differ(send, receive) and not (send.done and receive.done):
            variants = (Variant((sender,), send), Variant((receiver,), receive))
            return _stuck(group, receive, receiver, sender, variants)
    return None


def _differ(send: Call, receive: Call) -> bool:
    """True where the received shape differs; recorders keep the tensor as input of one side and output of the other."""
    given, taken = (call.input_sizes or call.output_sizes for call in (send, receive))
    return bool(given and taken and given != taken)


def _stuck(group: str, call: Call, waiting: int, other: int, variants: tuple[Variant, ...] = ()) -> Stuck:
    return Stuck(
        group=group,
        number=call.number,
        op=call.op,
        entered=(waiting, other) if variants else (waiting,),
        missing=() if variants else (other,),
        since_ns=call.entered_ns,
        frame=user_frame(call.frames),
        variants=variants,
        differs="shape" if variants else "",
        is_message=True,
    )
