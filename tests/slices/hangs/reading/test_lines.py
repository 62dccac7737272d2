"""Lines of recorded calls, from the log of what the script called."""

from ddprof.slices.hangs.evidence import Call, StackFrame
from ddprof.slices.hangs.reading.lines import with_lines


def own(entered_ns: int, left_ns: int | None, line: int, group: str = "0", peer: int | None = None) -> Call:
    frames = (StackFrame("train.py", line),)
    done = left_ns is not None
    return Call(group, 1, "x", done, peer=peer, entered_ns=entered_ns, left_ns=left_ns, frames=frames)


def recorded(entered_ns: int, group: str = "0", frames: tuple[StackFrame, ...] = ()) -> Call:
    return Call(group, 1, "all_reduce", False, entered_ns=entered_ns, frames=frames)


def lines(calls: list[Call], log: list[Call]) -> list[int | None]:
    return [call.frames[0].line if call.frames else None for call in with_lines(calls, log)]


def test_a_call_has_the_line_of_the_one_it_lies_in_unless_its_own_stack_was_recorded() -> None:
    log = [own(100, 200, 10), own(300, 400, 11), own(500, None, 12), own(310, 390, 99, peer=1)]
    assert lines([recorded(at) for at in (90, 100, 150, 250, 350, 600)], log) == [None, 10, 10, None, 11, 12]
    # Groups are apart, and a call inside another is over before it.
    log = [own(100, 900, 20), own(200, 300, 21), own(100, 900, 22, group="1")]
    assert lines([recorded(250), recorded(500), recorded(500, "1"), recorded(500, "2")], log) == [21, 20, 22, None]
    assert lines([recorded(150, frames=(StackFrame("ddp.py", 7),))], [own(100, 200, 10)]) == [7]
    ended = Call("0", 1, "x", True, entered_ns=100, frames=(StackFrame("train.py", 5),))
    assert lines([recorded(150)], [ended]) == [None]
