"""The rules of the house, enforced on the source itself: who may import whom, sizes, errors, docstrings, packages."""

import ast
import functools
import gc
import importlib
import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ddprof.slice import OWN, own_slices

ROOT = Path(__file__).resolve().parent.parent
MAPPED = ("analyzers", "dashboard", "workloads", "sample_traces")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

BASIS = {"averages", "causes", "model", "tables", "intervals", "units", "errors", "_version", "hardware", "sidecar"}
BASIS |= {"flight_recorder", "untrusted", "derived_once", "significance", "whose", "finding_ids"}
VOCABULARY = BASIS | {"findings"}
ROOMS = "facts job execution rules replay settings trust workers kernel_table"
PARTS = FACTS, JOB, EXECUTION, RULES, REPLAY, SETTINGS, TRUST, WORKERS, KERNEL_TABLE = tuple(
    f"analyzers.{room}" for room in ROOMS.split()
)
RUN_FOLDER, LAUNCHER = "capture.files", "capture.launcher"  # what both processes know; the process of `ddprof run`
PURE_REPORT = "report.model"

# unit -> what it may import of ddprof (its own unit is always allowed). The order is the direction of the flow.
ALLOWED: dict[str, set[str]] = {
    **{unit: set() for unit in ("sidecar", "untrusted", "derived_once", "averages", "finding_ids")},
    **{unit: set() for unit in ("intervals", "significance", "units", "_version", "slices", *MAPPED[2:])},
    **{"causes": {"finding_ids"}, "slice": {"untrusted"}, "flight_recorder": {"sidecar"}},
    "model": {"tables", "sidecar", "untrusted", "flight_recorder"},
    **{"errors": {"untrusted"}, "tables": {"errors"}, "whose": {"tables"}},
    "findings": {"whose", "sidecar"},  # the last one for bounded numbers
    "hardware": {"errors"},
    RUN_FOLDER: {"_version", "untrusted"},
    "settings": {"errors", "untrusted"},
    "capture": {"errors", "_version", "untrusted", "settings", RUN_FOLDER},  # where training runs: never the launcher
    LAUNCHER: {"errors", "_version", "untrusted", "settings", "sidecar", RUN_FOLDER, "capture.guard"},
    "readers": {"model", "sidecar", "tables", "intervals", "units", "errors", "untrusted", "flight_recorder", "slice"},
    FACTS: BASIS,
    JOB: BASIS | {FACTS},
    EXECUTION: BASIS | {FACTS, JOB},
    RULES: {"findings", "whose", "causes", "averages", "units", "model", "sidecar", "tables", "intervals"}
    | {"finding_ids", "significance", "derived_once", FACTS, JOB, EXECUTION, REPLAY},
    REPLAY: VOCABULARY | {FACTS, JOB, EXECUTION},
    SETTINGS: VOCABULARY | {"settings", FACTS, JOB, EXECUTION, REPLAY, TRUST},
    TRUST: VOCABULARY | {FACTS, JOB, EXECUTION, REPLAY},  # never the rules: they state what they stand on, no more
    KERNEL_TABLE: VOCABULARY | {FACTS, JOB, REPLAY, "readers", "analyzers"},  # when asked: no analysis imports it
    WORKERS: {"errors", "_version", "readers"},  # it hands sources to a function, and knows nothing of facts
    "trials": {"findings", "significance", "errors", "units", "untrusted", "settings", "report"},
    "analyzers": VOCABULARY | {*PARTS} - {KERNEL_TABLE} | {"settings", "slice", "readers", PURE_REPORT},
    "report": VOCABULARY | {"settings"},
    "dashboard": VOCABULARY
    | {"report", "analyzers", FACTS, JOB, REPLAY, SETTINGS, KERNEL_TABLE, "readers", "api", "settings", "trials"}
    | {"slice", RUN_FOLDER, LAUNCHER},  # launcher.live: the step rings of a running job
    "api": VOCABULARY | {"report", "analyzers", KERNEL_TABLE, "dashboard"},  # dashboard.onefile, imported lazily
    "pytest_plugin": {"api", "errors", "report"},
    "ddprof": {"api", "marks", "_version"},
    **{"__main__": {"cli"}, "marks": {"capture"}},  # the latter for the type checker alone
}
# A command may import everything of the core, lazily; so may a slice, which is a unit of its own: `slices.memory`.
FREE = {"cli"}
LAZY_ALLOWED = {"cli", "ddprof", "pytest_plugin", "api"}  # units whose functions may import ddprof modules
# Broad guards live only where the tool runs inside somebody else's process: the guard, and the start-up shim, which can
# import nothing of the package before it has made it importable. The dashboard has one for what it is given while it
# runs (uploads, a folder that changes): it goes on serving the runs that it has.
SHIM = "capture.shim.sitecustomize"
BROAD_GUARDS = {
    *("capture.guard", SHIM, "dashboard.runs.served"),
    "capture.applying.applier",  # a constructor may raise anything of our arguments: then it gets the script's
    "capture.applying.model_calls",  # a compiler may raise anything: then the graph runs as the script has it
    "readers.files.safe_pickle",  # a damaged pickle raises anything
    "slices.trackers.sending",  # a tracker's library raises what the libraries below it do
    "untrusted.stores",  # a store's driver raises what the libraries below it do
}
# unit -> packages of others that it may import. Capture lives in the user's process: it meets torch only by hooks, and
# sends runs away by fsspec in the launcher's. Nothing but capture, workloads and the user's script needs torch.
OTHERS: dict[str, set[str]] = {
    **{unit: {"numpy"} for unit in ("averages", "significance", "whose", "intervals")},
    **{unit: {"numpy", "msgspec"} for unit in ("analyzers", *{*PARTS} - {WORKERS})},
    **{unit: {"msgspec"} for unit in ("sidecar", "flight_recorder", "trials")},
    **{unit: {"tomli"} for unit in ("hardware", "settings")},  # Python 3.10
    "tables": {"numpy"},
    "untrusted": {"fsspec", "botocore"},
    LAUNCHER: {"fsspec", "msgspec"},
    "readers": {"numpy", "msgspec"},
    WORKERS: {"distributed", "msgspec"},
    "report": {"numpy", "rich", "msgspec"},
    "dashboard": {"numpy", "dash", "flask", "plotly", "werkzeug", "msgspec"},
    "api": {"pandas", "plotly"},
    **{f"slices.{name}": {"numpy", "msgspec", "click", "rich", "dash", "mcp", "mcp_types"} for name in OWN},
    "slices.tuning": {"click", "libcst", "msgspec", "numpy", "rich"},
    "slices.trackers": {"click", "wandb", "mlflow", "tensorboard", "comet_ml"},
    "cli": {"click", "rich"},
    "pytest_plugin": {"pytest"},
    "workloads": {"numpy", "torch", "transformers", "accelerate", "deepspeed"},
}


def _sources() -> list[tuple[str, Path]]:
    """(dotted name under ddprof, file) of every module of the package."""
    found = []
    for top in ("ddprof", *MAPPED):
        for file in sorted((ROOT / top).rglob("*.py")):
            parts = list(file.relative_to(ROOT).with_suffix("").parts)
            parts = parts[1:] if top == "ddprof" else parts
            if parts and parts[-1] == "__init__":
                parts.pop()
            found.append((".".join(parts) or "ddprof", file))
    return found


SOURCES = _sources()
NAMES = {name for name, _ in SOURCES}
FILES = dict(SOURCES)


@functools.cache
def _trees() -> dict[str, ast.Module]:
    """Syntax tree by module: parsed by whoever runs these tests, not by everybody who collects them."""
    return {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in SOURCES}


def _unit(name: str) -> str:
    """The unit of the import table that a module belongs to."""
    for unit in (*PARTS, RUN_FOLDER, LAUNCHER):
        if name == unit or name.startswith(unit + "."):
            return unit
    parts = name.split(".")
    return ".".join(parts[:2]) if parts[0] == "slices" else parts[0]


def _imported(statement: ast.AST) -> Iterator[str]:
    """Modules under ddprof that a statement imports."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            if alias.name == "ddprof" or alias.name.startswith("ddprof."):
                yield alias.name.removeprefix("ddprof").lstrip(".") or "ddprof"
    elif isinstance(statement, ast.ImportFrom) and statement.module and statement.module.split(".")[0] == "ddprof":
        base = statement.module.removeprefix("ddprof").lstrip(".")
        for alias in statement.names:
            full = f"{base}.{alias.name}".lstrip(".")
            yield full if full in NAMES else base or "ddprof"


def _imports(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """(module under ddprof, statement) of every ddprof import below a node."""
    return ((target, child) for child in ast.walk(node) for target in _imported(child))


def _inner_imports() -> Iterator[tuple[str, str, str]]:
    """(module, module that it imports, place) of every ddprof import in the package."""
    for name, statement in _nodes(ast.Import, ast.ImportFrom):
        for target in _imported(statement):
            yield name, target, f"{name}:{statement.lineno} imports {target}"


@functools.cache
def _every_node() -> defaultdict[type[ast.AST], list[tuple[str, Any]]]:
    """(module, node) of every node, by its kind."""
    nodes = defaultdict(list)
    gc.disable()  # of a million nodes none is garbage
    for name, tree in _trees().items():
        for node in ast.walk(tree):
            nodes[type(node)].append((name, node))
    gc.freeze()
    gc.enable()
    return nodes


def _nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, Any]]:
    """(module, node) of every node of these kinds."""
    return itertools.chain.from_iterable(_every_node()[kind] for kind in kinds)


def _import_statements() -> Iterator[tuple[str, Any, set[str]]]:
    """(module, statement, top-level packages that it names) of every import."""
    for name, node in _nodes(ast.Import, ast.ImportFrom):
        modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
        yield name, node, {module.split(".")[0] for module in modules}


def test_every_import_is_in_the_table() -> None:
    wrong = []
    for name, target, place in _inner_imports():
        unit, other = _unit(name), _unit(target)
        is_free = unit in FREE or unit.startswith("slices.") or target == "_version"
        is_own = other in {unit, "ddprof"} and target != "ddprof"
        if not (is_free or is_own or {other, target} & ALLOWED[unit]):
            wrong.append(place)
    assert wrong == []


def test_slices_are_listed_and_neither_the_core_nor_another_imports_one() -> None:
    imports = (row for row in _inner_imports() if row[1].startswith("slices."))
    assert [place for name, target, place in imports if _unit(target) != _unit(name)] == []
    assert {name.split(".")[1] for name in NAMES if name.startswith("slices.")} == set(OWN)
    for part in own_slices():
        named = [*part.formats, *part.answers, *part.failures, *part.pages, *part.destinations]
        named += [command.module for command in part.commands.values()]
        assert all(module.removeprefix("ddprof.") in NAMES for module in named), part.name


def test_children_of_a_room_form_no_circle() -> None:
    """A room is read child by child, in the order of its imports; a circle would have to be read at once. Its door is a
    child without a name, so that each cycle of modules is a circle in the smallest room around it."""
    below: dict[str, dict[str, set[str]]] = {}  # room -> child -> the children that it imports
    for name, tree in _trees().items():
        # Outside functions, those for type checkers only included: what a reader has to know beside the module.
        outer = (s for s in tree.body if not isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef))
        for target in {t for s in outer for t, _ in _imports(s) if t in NAMES and t != name}:
            mine, theirs = [*name.split("."), ""], [*target.split("."), ""]
            same = next(n for n, pair in enumerate(zip(mine, theirs, strict=False)) if pair[0] != pair[1])
            room = below.setdefault(".".join(mine[:same]), {})
            room.setdefault(mine[same], set()).add(theirs[same])
    circles = {}
    for room, imports in below.items():
        while free := [child for child in imports if not imports[child] & imports.keys()]:
            for child in free:
                del imports[child]
        if imports:
            circles[room] = imports
    assert circles == {}


def test_internal_imports_stand_at_the_top() -> None:
    assert [
        f"{name}:{statement.lineno} imports {target} inside {function.name}"
        for name, function in _nodes(ast.FunctionDef, ast.AsyncFunctionDef)
        if _unit(name) not in LAZY_ALLOWED and not name.startswith("slices.") and name != SHIM
        for target, statement in _imports(function)
    ] == []


def test_nothing_imports_a_mapped_folder_by_its_top_level_name_or_relatively() -> None:
    assert [
        f"{name}:{node.lineno} imports {'.' * getattr(node, 'level', 0)}{packages}"
        for name, node, packages in _import_statements()
        if getattr(node, "level", 0) or packages & {*MAPPED}
    ] == []


def test_packages_of_others_stay_where_they_are_needed() -> None:
    assert [
        f"{name}:{node.lineno} imports {foreign}"
        for name, node, packages in _import_statements()
        if (foreign := packages - sys.stdlib_module_names - {"ddprof", "tomllib"} - OTHERS.get(_unit(name), set()))
    ] == []


def test_files_and_functions_keep_to_their_size() -> None:
    lines = {name: len(file.read_text(encoding="utf-8").splitlines()) for name, file in FILES.items()}
    assert {name: count for name, count in lines.items() if count > MAX_FILE_LINES} == {}
    functions = _nodes(ast.FunctionDef, ast.AsyncFunctionDef)
    lines = {f"{name}.{f.name}:{f.lineno}": (f.end_lineno or 0) - f.lineno + 1 for name, f in functions}
    assert {name: count for name, count in lines.items() if count > MAX_FUNCTION_LINES} == {}


def test_no_broad_except_outside_the_guard() -> None:
    broad = []
    for name, node in _nodes(ast.ExceptHandler):
        caught = "everything" if node.type is None else ast.unparse(node.type)
        if name not in BROAD_GUARDS and {"everything", "Exception", "BaseException"} & set(re.split("[(), ]+", caught)):
            broad.append(f"{name}:{node.lineno} catches {caught}")
    assert broad == []


def test_public_names_have_docstrings() -> None:
    bare = [name for name, tree in _trees().items() if not ast.get_docstring(tree) and name != "_version"]
    for name, tree in _trees().items():
        for node in _public(tree):
            if not ast.get_docstring(node):
                bare.append(f"{name}.{node.name}")
            if isinstance(node, ast.ClassDef):
                bare += [f"{name}.{node.name}.{m.name}" for m in _public(node) if not _documented(m)]
    assert bare == []


Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _public(node: ast.Module | ast.ClassDef) -> list[Definition]:
    return [n for n in node.body if isinstance(n, Definition) and not n.name.startswith("_")]


def _documented(member: Definition) -> bool:
    """Overrides of another class's method are documented there (torch's `forward` says what a module does)."""
    marks = {ast.unparse(d).split(".")[-1] for d in member.decorator_list}
    return bool(ast.get_docstring(member) or marks & {"override", "overload", "setter"}) or member.name == "forward"


def test_no_forbidden_names_and_every_folder_of_sources_is_a_package() -> None:
    assert [name for name in NAMES if name.split(".")[-1] in {"utils", "util", "helpers", "misc", "common"}] == []
    # setup.py packs what has an `__init__.py`; a folder without one would be missing from the wheel.
    assert {str(file.parent) for file in FILES.values() if not (file.parent / "__init__.py").exists()} == set()


# Every search finds: the name of what it looked for tells more (a match, the rows, the candidates).
def test_no_variable_is_called_found() -> None:
    assert [
        f"{name}:{node.lineno}"
        for name, node in _nodes(ast.Name, ast.arg)
        if (node.arg if isinstance(node, ast.arg) else isinstance(node.ctx, ast.Store) and node.id) == "found"
    ] == []


def test_no_class_name_twice() -> None:
    """One concept, one name. The nets of the workloads are scripts of their own, named as in their papers."""
    trees = ((name, tree) for name, tree in _trees().items() if _unit(name) != "workloads")
    places = [(node.name, name) for name, tree in trees for node in _public(tree) if isinstance(node, ast.ClassDef)]
    assert [place for place in places if Counter(known for known, _ in places)[place[0]] > 1] == []


def test_the_package_refuses_a_second_name() -> None:
    """In a checkout the package's path holds the folder above it, and so the package itself."""
    with pytest.raises(ImportError, match=r"import ddprof, not ddprof\.ddprof"):
        importlib.import_module("ddprof.ddprof")

    # Imported as `analyzers`, everything would exist twice and register twice.
    for folder in MAPPED:
        scope = {"__name__": folder, "__file__": str(ROOT / folder / "__init__.py")}
        with pytest.raises(ImportError):
            exec(compile((ROOT / folder / "__init__.py").read_text(encoding="utf-8"), folder, "exec"), scope)


def test_no_path_or_host_of_a_developers_machine() -> None:
    forbidden = ("/work" + "/", "/root" + "/", "/opt" + "/wheels", "/opt" + "/pypi", "/home" + "/")
    files = [*FILES.values(), *(ROOT / n for n in ("README.md", "Makefile", ".ci/run", "pyproject.toml"))]
    texts = {file: file.read_text(encoding="utf-8") for file in files if file.exists()}
    assert [f"{file}: {word}" for file, text in texts.items() for word in forbidden if word in text] == []


def test_documents_that_the_source_names_can_be_opened() -> None:
    """`summary.md` and `columns.md` are what commands write; `PERFORMANCE.md` is nccl-tests' own."""
    elsewhere = {"summary.md", "columns.md", "PERFORMANCE.md"}
    known = {path.name for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"))}
    files = [*FILES.values(), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "ddprof").rglob("*.[ch]")]
    assert [
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in re.findall(r"[\w./-]*\w\.md\b", file.read_text(encoding="utf-8"))
        if name not in elsewhere and not ((ROOT / name).exists() if "/" in name else name in known)
    ] == []


# What differs between devices and CPU ranks stands in `analyzers/execution`, and in the facts of one rank.
DEVICE_FLAG_ALLOWED = ("analyzers.facts.", "analyzers.execution.", "analyzers.job.model")


def test_only_facts_and_execution_ask_whether_a_rank_has_a_device() -> None:
    asked = {name for name, node in _nodes(ast.Attribute) if node.attr in {"is_device_rank", "on_device"}}
    assert {name for name in asked if not name.startswith(DEVICE_FLAG_ALLOWED)} == set()
