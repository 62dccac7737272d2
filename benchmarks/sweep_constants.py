"""Between which values a constant of `analyzers/` changes no verdict on labelled runs.

    python -m benchmarks.sweep_constants /work/traces sample_traces --only 'rules/*' --only 'job/script/*:MOST*'

A process reads the runs with some constants at a multiple of their values. Where a verdict changes, halves of them are
tried again on the runs that changed, so that what nothing depends on costs little. A whole number stays one; a share
above one half is varied by its distance from one. A verdict is the bound, and each finding with its ranks and severity;
gains may move by 2 % of the step.
"""

from __future__ import annotations

import argparse
import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOWN, UP = (0.05, 0.3, 0.7), (20.0, 3.0, 1.5)  # tried outermost first, as few constants decide anything
AT_ONCE = 24  # constants set in one process: most lie far from any verdict
SAME_GAIN = 0.02  # of the step
Number = int | float
Verdicts = dict[str, Any]  # by run


def number_of(node: ast.stmt) -> tuple[str, Number] | None:
    """Name and value of a public constant that a statement sets to a number; None where it sets none."""
    target = (
        node.targets[0] if isinstance(node, ast.Assign) else node.target if isinstance(node, ast.AnnAssign) else None
    )
    if not isinstance(target, ast.Name) or not target.id.isupper() or target.id.startswith("_"):
        return None
    try:
        value = eval(ast.unparse(node.value), {"__builtins__": {}})  # type: ignore[attr-defined]
    except (NameError, TypeError):  # of other names: no plain number
        return None
    return (target.id, value) if type(value) in (int, float) and value > 0 else None


def constants(patterns: Sequence[str]) -> dict[str, Number]:
    """The values of all constants as `job/scope.py:MOST`, of those that match one of the patterns."""
    values: dict[str, Number] = {}
    for path in sorted((ROOT / "analyzers").rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if (one := number_of(node)) is not None:
                values[f"{path.relative_to(ROOT / 'analyzers')}:{one[0]}"] = one[1]
    return {name: value for name, value in values.items() if any(fnmatch(name, pattern) for pattern in patterns)}


def scaled(value: Number, factor: float) -> Number:
    """The value at a multiple: whole where it is whole, by the distance from one where it is a large share."""
    if isinstance(value, int):
        return round(value * factor)
    return max(1.0 - (1.0 - value) / factor, 0.0) if 0.5 < value < 1.0 else value * factor


class Altered(SourceFileLoader):
    """Loader of one module with other values of its constants."""

    def __init__(self, name: str, path: str, values: Mapping[str, Number]) -> None:
        super().__init__(name, path)
        self.values = values

    def get_code(self, fullname: str) -> CodeType:
        """The module's code with the values put in place of its own."""
        tree = ast.parse(self.get_data(self.path))
        for node in tree.body:
            one = number_of(node)
            if one is not None and one[0] in self.values and isinstance(node, ast.Assign | ast.AnnAssign):
                node.value = ast.copy_location(ast.Constant(self.values[one[0]]), node)
        return compile(tree, self.path, "exec")


class Altering:
    """Finder, for `sys.meta_path`, of the modules whose constants have other values."""

    def __init__(self, values: Mapping[str, Number]) -> None:
        self.by_module: dict[str, dict[str, Number]] = {}
        for name, value in values.items():
            path, constant = name.split(":")
            module = "ddprof.analyzers." + path.removesuffix(".py").replace("/", ".")
            self.by_module.setdefault(module.removesuffix(".__init__"), {})[constant] = value

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The spec of a module with other values, None for all others."""
        values = self.by_module.pop(name, None)
        spec = find_spec(name) if values is not None else None
        if values is None or spec is None or spec.origin is None:
            return None
        return spec_from_loader(name, Altered(name, spec.origin, values))


def verdicts(runs: Sequence[str], cache: str | None) -> Verdicts:
    """The verdict on each run, by its path."""
    from ddprof.analyzers.engine import Options, analyze
    from ddprof.errors import DdprofError

    told: Verdicts = {}
    for run in runs:
        try:
            reports = analyze([run], Options(workers=1, cache=cache or False))
        except DdprofError as error:
            told[run] = [str(error)]
            continue
        told[run] = [
            [r.verdict.bound, [[f.id, list(f.ranks), r.severity_of(f)] for f in r.findings],
             [f.recoverable_us.value / max(r.steps.wall_us, 1e-9) for f in r.findings]]
            for r in reports
        ]  # fmt: skip
    return told


def same(before: Any, after: Any) -> bool:
    """True where bound and findings are equal, and gains nearly so."""
    if isinstance(before, float) and isinstance(after, float):
        return abs(before - after) <= SAME_GAIN
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(same, before, after))
    return bool(before == after)


def asked(runs: Sequence[str], values: Mapping[str, Number], cache: str) -> Verdicts:
    """The verdicts of a fresh process with these values. Facts are kept unless a constant of `facts/` is among them."""
    reads = any(name.startswith("facts/") for name in values)
    task = json.dumps([list(runs), dict(values), None if reads else cache])
    command = [sys.executable, "-m", "benchmarks.sweep_constants", "--task"]
    done = subprocess.run(command, input=task, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else dict.fromkeys(runs, "failed")


def moved(names: Sequence[str], values: Mapping[str, Number], before: Verdicts, cache: str) -> dict[str, list[str]]:
    """Return the constants among these whose value changes verdicts, each with the runs."""
    after = asked(list(before), {name: values[name] for name in names}, cache)
    runs = [run for run in before if not same(before[run], after[run])]
    if not runs or len(names) == 1:
        return {names[0]: runs} if runs else {}
    half, there = len(names) // 2, {run: before[run] for run in runs}
    return moved(names[:half], values, there, cache) | moved(names[half:], values, there, cache)


def sweep(own: Mapping[str, Number], runs: Sequence[str], cache: str) -> None:
    """Print, of each constant, the range in which nothing changes, and the runs that change beyond it."""
    before = asked(runs, {}, cache)
    for factors in (DOWN, UP):
        names, beyond = list(own), dict.fromkeys(own, "")
        for factor in factors:
            values = {name: scaled(own[name], factor) for name in names}
            changed: dict[str, list[str]] = {}
            for at in range(0, len(names), AT_ONCE):
                changed |= moved(names[at : at + AT_ONCE], values, before, cache)
            for name in set(names) - set(changed):
                print(f"{name} = {own[name]:g}: nothing changes to {values[name]:g}{beyond[name]}", flush=True)
            names = list(changed)
            beyond |= {name: f", at {values[name]:g}: {', '.join(map(_short, changed[name][:3]))}" for name in names}
        for name in names:
            print(f"{name} = {own[name]:g}: decides{beyond[name]}", flush=True)


def _short(run: str) -> str:
    return Path(run).name


def main() -> None:
    """Sweep, or give the verdicts that another process asks for on standard input."""
    if sys.argv[1:] == ["--task"]:
        runs, values, cache = json.load(sys.stdin)
        sys.meta_path.insert(0, Altering(values))  # type: ignore[arg-type]
        print(json.dumps(verdicts(runs, cache)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders that hold runs: each has a folder traces/")
    parser.add_argument("--only", action="append", help="constants, such as job/scope.py:MOST; * stands for any text")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every Nth run")
    args = parser.parse_args()
    runs = sorted({str(path.parent) for folder in args.folders for path in folder.resolve().rglob("traces")})
    own = constants(args.only or ["*"])
    print(f"{len(own)} constants, {len(runs[:: args.every])} runs", file=sys.stderr)
    with tempfile.TemporaryDirectory() as cache:
        sweep(own, runs[:: args.every], cache)


if __name__ == "__main__":
    main()
