"""Number of recordings that each condition of the deciding functions decides, to find useless gates.

The modules are loaded with every test of a branch, every part of "and", "or", "&" and "|" wrapped. A part of a chain
decides a recording where the chain has another value without it; a test of a branch where the branch is taken both ways
over all recordings, and this recording is of the rarer way.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType
from typing import Any

import numpy as np

DECIDING = (
    *(f"rules.straggler_{name}" for name in ("compute", "host", "imbalance", "unexplained")),
    "rules.input_straggler", "rules.host_stalled", "rules.pipeline_imbalance", "rules.input_starved",
    "trust.busy_machine", "job.waiting.lateness", "job.steps.onset",
    "job.steps.steady", "job.input_size",
)  # fmt: skip
_HOOK = "_gate"


@dataclass
class Gates:
    """Recordings decided by each gate (module, line, words)."""

    recording: str = ""
    known: dict[str, tuple[str, int, str]] = field(default_factory=dict)
    decided: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    reached: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def chain(self, is_all: bool, *parts: tuple[str, Callable[[], Any]]) -> Any:
        """The value of "and" / "or"; the part that ends it early decides."""
        value: Any = is_all
        for name, part in parts:
            self.reached[name].add(self.recording)
            value = part()
            if bool(value) is not is_all:
                self.decided[name].add(self.recording)
                return value
        return value

    def masks(self, is_all: bool, name: str, left: Any, right: Any) -> Any:
        """The value of "&" / "|"; the right part decides where the left alone is another."""
        value = left & right if is_all else left | right
        self.reached[name].add(self.recording)
        if isinstance(value, np.ndarray | np.bool_ | bool) and not np.array_equal(value, left):
            self.decided[name].add(self.recording)
        return value

    def branch(self, name: str, value: Any) -> Any:
        """The value of a test; both ways are counted."""
        self.reached[name].add(self.recording)
        if value:
            self.decided[name].add(self.recording)
        return value

    def rows(self) -> list[tuple[str, int, str, int, int]]:
        """Module, line, words, recordings that reach it, and that it decides: fewest first, those never reached too."""
        found = []
        for name, (module, line, words) in self.known.items():
            reached, taken = len(self.reached[name]), len(self.decided[name])
            decides = min(taken, reached - taken) if name.startswith("if") else taken
            found.append((module, line, words, reached, decides))
        return sorted(found, key=lambda row: (row[4], row[0], row[1]))


class _Wrapped(ast.NodeTransformer):
    """Every gate of a module handed to the hook, under a name of its own."""

    def __init__(self, module: str, gates: Gates) -> None:
        self.module, self.gates = module, gates

    def _named(self, kind: str, node: ast.expr) -> ast.Constant:
        name = f"{kind}:{self.module}:{node.lineno}:{node.col_offset}"
        self.gates.known[name] = (self.module, node.lineno, ast.unparse(node)[:90])
        return ast.Constant(name)

    def _call(self, method: str, *arguments: ast.expr) -> ast.Call:
        return ast.Call(ast.Attribute(ast.Name(_HOOK, ast.Load()), method, ast.Load()), [*arguments], [])

    def visit_arg(self, node: ast.arg) -> ast.arg:
        """Types are no gates."""
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        """Without the type of what it returns."""
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        parts = []
        for part in node.values:
            name = self._named("part", part)
            nothing = ast.arguments([], [], None, [], [], None, [])
            parts.append(ast.Tuple([name, ast.Lambda(nothing, self.visit(part))], ast.Load()))
        return self._call("chain", ast.Constant(isinstance(node.op, ast.And)), *parts)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if not isinstance(node.op, ast.BitAnd | ast.BitOr):
            self.generic_visit(node)
            return node
        name = self._named("mask", node.right)
        return self._call(
            "masks", ast.Constant(isinstance(node.op, ast.BitAnd)), name, self.visit(node.left), self.visit(node.right)
        )

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        if not isinstance(node.op, ast.BitAnd | ast.BitOr) or not isinstance(node.target, ast.Name):
            self.generic_visit(node)
            return node
        return ast.Assign(
            [node.target], self.visit(ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value))
        )

    def visit_If(self, node: ast.If) -> ast.stmt:
        name = self._named("if", node.test)
        self.generic_visit(node)
        node.test = self._call("branch", name, node.test)
        return node


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, gates: Gates) -> None:
        super().__init__(name, path)
        self.gates = gates

    def get_code(self, fullname: str) -> CodeType:
        """The wrapped module, never from a cache."""
        path = self.get_filename(fullname)
        tree = _Wrapped(fullname.removeprefix("ddprof.analyzers."), self.gates).visit(ast.parse(self.get_data(path)))
        return compile(ast.fix_missing_locations(tree), path, "exec")

    def exec_module(self, module: Any) -> None:
        """Run it with its hook."""
        setattr(module, _HOOK, self.gates)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def __init__(self, gates: Gates) -> None:
        self.gates = gates

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        """The deciding modules alone."""
        if fullname.removeprefix("ddprof.analyzers.") not in DECIDING:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self.gates)
        return spec


def watched() -> Gates:
    """Gates of the deciding modules. Call it before any of them is imported."""
    gates = Gates()
    sys.meta_path.insert(0, _Finder(gates))
    return gates
