"""A setting against the step it would give: the best value, those as good as it, and what to advise."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

FLAT_SHARE = 0.02  # within this of the best step a value is as good: predictions are no sharper


class Point(Struct, frozen=True):
    """One value of the setting and the predicted step (us)."""

    value: float
    step_us: float


class SettingCurve(Struct, frozen=True):
    """Predicted step over a setting, in order of its values. `now`: the run's own value, where it is known."""

    knob: str
    points: tuple[Point, ...]
    now: float | None = None

    @property
    def best(self) -> Point:
        """The least step; of equal ones the smallest value."""
        return min(self.points, key=lambda p: (p.step_us, p.value))

    @property
    def flat(self) -> tuple[Point, ...]:
        """The values that are as good as the best one, in order."""
        limit = self.best.step_us * (1 + FLAT_SHARE)
        return tuple(point for point in self.points if point.step_us <= limit)

    def advised(self, preferred: Sequence[float]) -> Point:
        """The run's own value where it is as good as the best, else the first preferred one that is, else the best."""
        wanted = preferred if self.now is None else (self.now, *preferred)
        return next((p for value in wanted for p in self.flat if p.value == value), self.best)
