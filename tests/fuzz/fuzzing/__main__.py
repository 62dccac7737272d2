"""`python -m fuzzing`: run cases, group what fails by its place, keep the smallest input of each group:
files left out, then events and values, then pieces of text."""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from fuzzing.cases import Case, drawn, kept
from fuzzing.judge import MOST_CPU_S, Bounds
from fuzzing.mutations.values import documents, put
from fuzzing.pool import Pool, Worker
from fuzzing.tree import Tree, files, plant, unpacked, without

T = TypeVar("T")
Fails = Callable[[Tree], bool]
KEPT_BOUNDS = Bounds(cpu_s=5.0, peak_bytes=500 << 20)
_SECONDS_EACH = 20.0  # to make the input of a group smaller


@dataclass
class Group:
    """Failures of one kind at one place."""

    kind: str
    place: str
    cases: list[tuple[Case, str]] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.kind} {self.place}".strip()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns 1 where a case failed."""
    options = _options(arguments)
    start = options.seed if options.seed is not None else int.from_bytes(os.urandom(4), "big") * 1_000
    if options.kept or options.case:
        cases = kept() if options.kept else [Case.named(name) for name in options.case]
    else:
        cases = list(drawn(options.count, start, options.everywhere))
        print(f"SEED={start} N={options.count}: {cases[0].name} ... {cases[-1].name}", file=sys.stderr)
    bounds = KEPT_BOUNDS if options.kept else Bounds(options.seconds)
    return _report(run(cases, options.processes, bounds), len(cases), options)


def _report(groups: Sequence[Group], count: int, options: argparse.Namespace) -> int:
    """Print what failed, write and keep it where that is asked for; 1 where anything did."""
    for group in groups:
        print(f"{len(group.cases):5}  {group.title}\n       {group.cases[0][0].name}: {group.cases[0][1]}")
    print(f"{sum(len(g.cases) for g in groups)} failures in {len(groups)} groups, of {count} cases")
    if options.json:
        named = [[{"name": case.name, "text": text} for case, text in group.cases] for group in groups]
        listed = [{"kind": g.kind, "place": g.place, "cases": of} for g, of in zip(groups, named, strict=True)]
        options.json.write_text(json.dumps(listed, indent=1))
    if options.keep and groups:
        keep(groups, options.keep)
    return 1 if groups else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzzing", description="Damaged inputs through the command line.")
    parser.add_argument("--count", type=int, default=1_000, help="how many cases")
    parser.add_argument("--seed", type=int, help="number of the first case (default: a new one)")
    parser.add_argument("--kept", action="store_true", help="the inputs that failed before, instead of new cases")
    parser.add_argument("--everywhere", action="store_true", help="only seeds that every checkout has")
    parser.add_argument("--seconds", type=float, default=MOST_CPU_S, help="CPU time that a case may take")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--case", action="append", default=[], help="one case by its name; repeatable")
    parser.add_argument("--json", type=Path, help="write the groups to this file")
    parser.add_argument("--keep", type=Path, help="write the smallest input of each group below this folder")
    return parser.parse_args(arguments)


def run(cases: Sequence[Case], processes: int, bounds: Bounds) -> list[Group]:
    """Groups of failures, the largest first."""
    groups: dict[tuple[str, str], Group] = {}
    done, since, pool = 0, time.monotonic(), Pool(processes, bounds)
    try:
        for done, (case, failures) in enumerate(pool.run(cases), 1):
            for failure in failures:
                group = groups.setdefault((failure.kind, failure.place), Group(failure.kind, failure.place))
                group.cases.append((case, failure.text))
                print(f"{group.title} {case.name}: {failure.text}", file=sys.stderr, flush=True)
            if done % 250 == 0:
                print(f"{done}/{len(cases)} in {time.monotonic() - since:.0f} s, {len(groups)} groups", file=sys.stderr)
    except KeyboardInterrupt:
        print(f"stopped after {done} of {len(cases)} cases", file=sys.stderr)
    finally:
        pool.close()
    for group in groups.values():  # the smallest first
        group.cases.sort(key=lambda item: (sum(len(content) for _, content in files(item[0].tree)), item[0].name))
    return sorted(groups.values(), key=lambda group: (-len(group.cases), group.title))


def keep(groups: Sequence[Group], folder: Path) -> None:
    """Write the smallest input of each group that can be found in some seconds, with what it was."""
    base = Path(tempfile.mkdtemp(prefix="ddprof-fuzz-"))
    base.chmod(0o755)
    worker = Worker(base)
    worker.warm_up()
    for group in groups:
        case, text = group.cases[0]
        tree = case.tree if group.kind in ("hang", "died", "slow") or case.of_cache else _smallest(worker, case, group)
        target = folder / "".join(c if c.isalnum() else "_" for c in group.title)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        plant(tree, target)
        words = f"{group.title}\n{text}\ncase {case.name}\nddprof {' '.join(case.command)}, target {case.target}\n"
        (target / "what.txt").write_text(words)
        print(f"kept {target}", file=sys.stderr)
    shutil.rmtree(base, ignore_errors=True)


def _smallest(worker: Worker, case: Case, group: Group) -> Tree:
    def fails(tree: Tree) -> bool:
        remade = Case.named(case.name)  # with another tree in place of the one its name makes
        remade.__dict__.update(tree=tree, target=case.target if case.target in tree else "run")
        return any((one.kind, one.place) == (group.kind, group.place) for one in worker.run(remade, Bounds()))

    return minimised(case.tree, fails, _SECONDS_EACH)


def minimised(tree: Tree, fails: Fails, seconds: float) -> Tree:
    """A smaller tree for which `fails` holds too; the best that was found in the time."""
    until = time.monotonic() + seconds

    def holds(candidate: Tree) -> bool:
        return time.monotonic() < until and fails(candidate)

    for name in sorted(tree, key=lambda path: path.startswith("run/")):
        if holds(without(tree, name)):
            tree = without(tree, name)
    for name, entry in tree.items():
        if isinstance(entry, bytes) and unpacked(entry) is not entry and holds({**tree, name: unpacked(entry)}):
            tree = {**tree, name: unpacked(entry)}
    for name, value in documents(tree):
        tree = _smaller_document(tree, name, value, holds)
    parsed = {name for name, _ in documents(tree)}
    for name in [name for name, entry in tree.items() if isinstance(entry, bytes) and name not in parsed]:
        tree = _smaller_text(tree, name, holds)
    return tree


def _smaller_document(tree: Tree, name: str, value: Any, holds: Fails) -> Tree:
    """Events, lines and top-level keys left out."""
    if isinstance(value, dict):
        for key in list(value):
            smaller = {k: v for k, v in value.items() if k != key}
            if holds(put(tree, name, smaller)):
                value = smaller
        for key, held in list(value.items()):
            if isinstance(held, list) and len(held) > 1:
                value |= {key: fewer(held, lambda items, v=value, k=key: holds(put(tree, name, {**v, k: items})))}
    elif isinstance(value, list):
        value = type(value)(fewer(value, lambda items: holds(put(tree, name, type(value)(items)))))
    smallest = put(tree, name, value)
    return smallest if holds(smallest) else tree


def _smaller_text(tree: Tree, name: str, holds: Fails) -> Tree:
    """Pieces of the text left out, at most some hundred."""
    entry = tree[name]
    assert isinstance(entry, bytes)
    size = max(1, len(entry) // 256)
    pieces = [entry[at : at + size] for at in range(0, len(entry), size)]
    return {**tree, name: b"".join(fewer(pieces, lambda kept: holds({**tree, name: b"".join(kept)})))}


def fewer(items: Sequence[T], holds: Callable[[list[T]], bool]) -> list[T]:
    """Delta debugging: a sublist for which it holds, of which no tried part can be left out."""
    left, parts = list(items), 2
    while len(left) > 1 and parts <= 2 * len(left):
        size = -(-len(left) // min(parts, len(left)))
        for at in range(0, len(left), size):
            smaller = left[:at] + left[at + size :]
            if smaller and holds(smaller):
                left, parts = smaller, max(2, parts - 1)
                break
        else:
            if size == 1:
                return left
            parts *= 2
    return left


if __name__ == "__main__":
    raise SystemExit(main())
