"""Values derived of an object are computed once for it, and never shared with another."""

import pickle
from dataclasses import dataclass, replace

from ddprof.derived_once import remembered


@dataclass(frozen=True)
class Square:
    side: int


worked_out: list[tuple[int, int]] = []


@remembered
def scaled(square: Square, by: int) -> int:
    worked_out.append((square.side, by))
    return square.side * by


def test_each_object_and_argument_is_worked_out_once_a_changed_copy_anew_and_equality_stays() -> None:
    worked_out.clear()
    one, other = Square(2), Square(2)
    assert [scaled(one, 3), scaled(one, 3), scaled(one, 4), scaled(other, 3)] == [6, 6, 8, 6]
    assert worked_out == [(2, 3), (2, 4), (2, 3)] and scaled(replace(one, side=5), 3) == 15
    assert one == Square(2) == pickle.loads(pickle.dumps(one))
