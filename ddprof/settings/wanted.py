"""The fixes that a run is to apply: parsed, checked against the catalogue and each other, and sent to the ranks.

Those that are environment variables `ddprof run` sets before the command starts; the ranks read them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ddprof.settings.catalogue import APPLIED_AS, CATALOGUE, NCCL_PREFIX, PROCESS, Effect, Value

MAX_FIXES = 64  # they travel in the environment of every process
_PLACE = re.compile(r"(?P<file>[^\0]+):(?P<line>[1-9][0-9]{0,8})")


@dataclass(frozen=True)
class WantedFix:
    """Settings that belong together: an object gets all of them or none.

    `at`: "train.py:57", the line of the script that makes the object; "": every object that has these settings.
    """

    values: Mapping[str, Value]
    at: str = ""
    finding: str = ""  # what it is to mend, where an analysis says so
    targets: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Raise ValueError on settings that no run could apply."""
        if not self.values:
            raise ValueError("a fix sets nothing")
        checked = {name: _checked(name, value) for name, value in self.values.items()}
        object.__setattr__(self, "values", checked)
        shared = [set(CATALOGUE[name].targets) for name in checked]
        targets = set.intersection(*shared)
        if not targets:
            raise ValueError(f"{', '.join(checked)} belong to different objects: one fix each")
        object.__setattr__(self, "targets", tuple(sorted(targets)))
        if self.at and _PLACE.fullmatch(self.at) is None:
            raise ValueError(f"at = {self.at[:100]!r}: wants FILE:LINE")
        if self.at and targets == {PROCESS}:
            raise ValueError(f"{', '.join(checked)}: of the whole process, not of an object made at {self.at[:100]}")

    def is_made_at(self, file: str, line: int) -> bool:
        """True where it applies to an object created by this line of the script."""
        if not self.at:
            return True
        wanted, _, number = self.at.rpartition(":")
        wanted = wanted.removeprefix("./")
        return int(number) == line and (file == wanted or file.endswith("/" + wanted) or wanted.endswith("/" + file))

    @property
    def words(self) -> str:
        """The fix as on the command line: "num_workers=4 at train.py:57"."""
        return ", ".join(f"{name}={shown(value)}" for name, value in self.values.items()) + (
            f" at {self.at}" if self.at else ""
        )


def shown(value: object) -> str:
    """A value as users type it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_set(text: str) -> WantedFix:
    """Parse `num_workers=4` or `num_workers=4@train.py:57`; names of what-ifs work too. Raises ValueError."""
    name, equals, rest = text.partition("=")
    value, _, at = rest.partition("@")
    if not equals or not value:
        raise ValueError(f"{text[:100]!r}: wants NAME=VALUE or NAME=VALUE@FILE:LINE")
    name, _, value = APPLIED_AS.get(f"{name.strip()}={value.strip()}", f"{name}={value}").partition("=")
    return WantedFix({name.strip(): _typed(value.strip())}, at.strip())


def checked_together(fixes: Sequence[WantedFix]) -> tuple[WantedFix, ...]:
    """The settings, checked together. Raises ValueError for too many, or two values for one place."""
    if len(fixes) > MAX_FIXES:
        raise ValueError(f"{len(fixes)} fixes: at most {MAX_FIXES}")
    seen: dict[tuple[str, str], Value] = {}
    for fix in fixes:
        for name, value in fix.values.items():
            before = seen.setdefault((name, fix.at), value)
            if before != value:
                raise ValueError(f"{name} is set to {shown(before)} and to {shown(value)}")
    for at in {fix.at for fix in fixes}:
        together = {name: value for (name, place), value in seen.items() if place in ("", at)}
        if together.get("num_workers") == 0 and any(together.get(name) for name in _NEED_WORKERS):
            names = [name for name in _NEED_WORKERS if together.get(name)]
            raise ValueError(f"num_workers=0 and {names[0]}={shown(together[names[0]])} exclude each other")
        if together.get("fused") is True and together.get("foreach") is True:
            raise ValueError("fused=true and foreach=true exclude each other")
        if "first_bucket_mb" in together and "bucket_cap_mb" in together:
            raise ValueError(
                "first_bucket_mb and bucket_cap_mb exclude each other: DDP takes the latter for all buckets"
            )
    return tuple(fixes)


_NEED_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context")


def changes_numbers(fix: WantedFix) -> bool:
    """True where training gives other numbers with the fix because of its precision."""
    return any(CATALOGUE[name].effect is Effect.NUMBERS for name in fix.values)


def packed(fixes: Iterable[WantedFix]) -> str:
    """The fixes encoded for the ranks; "" without any."""
    rows = [[dict(fix.values), fix.at, fix.finding] for fix in fixes]
    return json.dumps(rows, separators=(",", ":")) if rows else ""


def unpacked(text: str) -> tuple[WantedFix, ...]:
    """Fixes from the text made by `packed`. Raises ValueError."""
    try:
        return tuple(WantedFix(values, at, finding) for values, at, finding in json.loads(text))
    except (TypeError, AttributeError) as error:
        raise ValueError(f"the fixes of ddprof run are damaged: {error}") from None


def _checked(name: str, value: Value) -> Value:
    setting = CATALOGUE.get(name)
    if setting is None:
        raise ValueError(f"no setting {name[:60]!r} can be applied; there are: {', '.join(sorted(CATALOGUE))}")
    try:
        return setting.check(value)
    except ValueError as error:
        raise ValueError(f"{name}={shown(value)[:60]}: wants {error}") from None


def _typed(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the first where both are read: torch 2.9 and later


def variables(fixes: Iterable[WantedFix], base: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that the fixes add to, or change in, `base`."""
    changed: dict[str, str] = {}
    for fix in fixes:
        for name, value in fix.values.items():
            if name == "omp_num_threads":
                changed["OMP_NUM_THREADS"] = str(value)
            elif name == "expandable_segments":
                changed |= _allocator(bool(value), base)
            elif name.startswith(NCCL_PREFIX):
                changed[name] = str(value)
    return changed


def differs(name: str, value: Value, environment: Mapping[str, str]) -> str | None:
    """The reason why a setting differs from a process's environment; "" where it does not, None for other settings."""
    wanted = variables([WantedFix({name: value})], environment)
    if not wanted:
        return None
    for variable, text in wanted.items():
        there = environment.get(variable)
        if there != text:
            is_ = "not set" if there is None else there[:60]
            return f"{variable} is {is_} in this process: the launcher did not pass it on, or the command sets it"
    return ""


def _allocator(wanted: bool, base: Mapping[str, str]) -> dict[str, str]:
    variable = next((name for name in _ALLOCATOR if base.get(name)), _ALLOCATOR[1])
    option = f"expandable_segments:{shown(wanted).capitalize()}"
    others = [part for part in base.get(variable, "").split(",") if part.strip()]
    kept = [part for part in others if not part.strip().startswith("expandable_segments:")]
    return {variable: ",".join([*kept, option])}
