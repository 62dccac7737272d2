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
TREES = ("ddprof", "analyzers", "dashboard", "workloads", "sample_traces")
OPENING = re.compile(
    r'^ *r?"""((?:What(?!-)|Which|Whether|How|Where|Of|As|The same|Those|That of|Fields: what|Flags of|None where|'
    r"(?:Record|Evidence) of (?:what|which|how|where)|(?:Words|Lines|Rows|Notes) on (?:wh|how)\w*)\b.*)",
    re.MULTILINE,
)


def _constants(tree: ast.AST) -> Iterator[str]:
    """Texts of a module, docstrings left out."""
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.value


def test_no_text_speaks_in_the_old_voice() -> None:
    files = [file for top in TREES for file in (ROOT / top).rglob("*.py")]
    texts = {file: " ".join(_constants(ast.parse(file.read_text("utf-8")))) for file in files}
    assert {str(file): said[0] for file, text in texts.items() if (said := OLD_VOICE.findall(text))} == {}


def test_docstrings_begin_with_what_they_name() -> None:
    """The noun of what is returned, or kept, or done comes first, so that each is understood without its neighbours."""
    files = (file for top in (*TREES, "benchmarks", "tests") for file in (ROOT / top).rglob("*.py"))
    assert {str(file): wrong for file in files if (wrong := OPENING.findall(file.read_text("utf-8")))} == {}
