"""Fixes that may change what is trained say so in their rules, and then never stand without proof or condition."""

import ast
import re
from pathlib import Path
from typing import cast

import pytest

from ddprof.analyzers import rules
from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.same_result import CONDITIONS, checked
from ddprof.findings import Alters, Fix

# Words of a change to what is computed, in a setting, a suggestion or a patch.
ALTERING = re.compile(
    r"no_sync\(|register_comm_hook\(|autocast|dist\.barrier|larger, if memory|all_reduce\((?:metrics|total)\)"
)
FILES = sorted(Path(rules.__path__[0]).rglob("*.py"))


def _fixes(path: Path) -> list[ast.Call]:
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Fix"]


@pytest.mark.parametrize("path", [path for path in FILES if _fixes(path)], ids=lambda path: path.stem)
def test_a_fix_whose_words_alter_what_is_computed_says_so(path: Path) -> None:
    for call in _fixes(path):
        if ALTERING.search(ast.unparse(call)):
            assert any(keyword.arg == "alters" for keyword in call.keywords), ast.unparse(call)


def test_every_kind_of_change_has_a_condition() -> None:
    assert set(CONDITIONS) == set(Alters)
    assert all(len(words.split()) <= 20 and words.startswith("Check first that ") for words in CONDITIONS.values())


def test_compiling_a_model_is_not_said_to_lower_its_precision() -> None:
    fix = Fix("torch.compile", "torch.compile(model)", "launches cost", "PyTorch", applies=(("compile", True),))
    assert not checked(fix, cast(Measures, None)).condition
