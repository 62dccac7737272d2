"""The words of the product: no voice that needs a second reading, and docstrings that begin with what they name."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OLD_VOICE = re.compile(
    r"it is held in|of its own that the replay can see|none of its \\d+ fixes|it need not be fine|is in no number of|"
    r"takes? turns at|, and says so|nobody is blamed|charged to nobody|what it spends more time on|"
    r"goes to what|numbers keep fewer bits|so that little can|how often it comes again|of it exposed"
)
# Modules whose docstrings name what is returned, with its noun, first.
PLAIN = (
    *("analyzers/diagnose.py", "analyzers/verdict.py", "analyzers/replay/price.py", "analyzers/settings/knobs.py"),
    *("analyzers/settings/buckets.py", "analyzers/settings/loader.py", "analyzers/settings/offers.py"),
    *("analyzers/settings/predict.py", "analyzers/trust/believed.py", "analyzers/trust/confidence.py"),
    *("analyzers/trust/ledger_price.py", "analyzers/trust/precision.py", "ddprof/readers/files/safe_pickle.py"),
    *("ddprof/report/calibration.py", "ddprof/report/json/parts.py", "ddprof/report/phrases.py"),
    *("ddprof/slices/tuning/race.py", "ddprof/units.py"),
)
OPENING = re.compile(r"(What|Which|Whether|How|Where|Of|As|The same)\b")


def _constants(tree: ast.AST) -> Iterator[str]:
    """Texts of a module, docstrings left out."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_no_text_speaks_in_the_old_voice() -> None:
    files = [file for top in ("ddprof", "analyzers", "dashboard") for file in (ROOT / top).rglob("*.py")]
    texts = {file: " ".join(_constants(ast.parse(file.read_text("utf-8")))) for file in files}
    assert {str(file): said[0] for file, text in texts.items() if (said := OLD_VOICE.findall(text))} == {}


def test_docstrings_begin_with_the_noun_and_no_local_is_called_found() -> None:
    wrong = []
    for name in PLAIN:
        for node in ast.walk(ast.parse((ROOT / name).read_text("utf-8"))):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and OPENING.match(
                ast.get_docstring(node) or ""
            ):
                wrong.append(f"{name}: {getattr(node, 'name', 'the module')}")
            if isinstance(node, ast.Name) and node.id == "found" and isinstance(node.ctx, ast.Store):
                wrong.append(f"{name}:{node.lineno}: found")
    assert wrong == []
