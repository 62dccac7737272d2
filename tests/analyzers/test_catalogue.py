"""The catalogue: every identifier of the contract once, each with a whole documentation page."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

from ddprof.analyzers import rules
from ddprof.analyzers.catalogue import catalogue, page

CONTRACT = [
    "input.starved",
    "input.straggler",
    "input.pageable_copy",
    "input.unsharded",
    "comm.latency_bound",
    "comm.no_overlap",
    "comm.bandwidth_bound",
    "comm.slow_link",
    "comm.sharding",
    "straggler.compute",
    "straggler.imbalance",
    "straggler.host",
    "host.launch_bound",
    "host.sync",
    "host.gc",
    "host.checkpoint",
    "host.allocator",
    "pipeline.bubble",
    "pipeline.imbalance",
    "memory.headroom",
    "compute.precision",
    "compute.unfused_optimizer",
]
BOUNDS = {"compute", "input", "communication", "straggler", "host", "pipeline", "memory"}
HEADINGS = ("What it detects:", "Why it costs:", "How the gain is priced:", "How to fix:", "Limits:", "Sources:")


def test_every_identifier_of_the_contract_has_a_rule() -> None:
    assert set(CONTRACT) <= set(catalogue())


def test_each_file_of_the_rules_ends_in_one_rule_and_is_named_after_it() -> None:
    files = sorted(path for path in Path(rules.__path__[0]).glob("*.py") if path.stem != "__init__")
    own = {path: importlib.import_module(f"{rules.__name__}.{path.stem}").RULE for path in files}
    assert all(path.stem == rule.id.replace(".", "_") for path, rule in own.items())
    last = {path: ast.unparse(ast.parse(path.read_text(encoding="utf-8")).body[-1]) for path in files}
    assert [path.stem for path in files if not last[path].startswith("RULE = Rule(")] == []


@pytest.mark.parametrize("rule_id", CONTRACT)
def test_pages_answer_every_question_in_order(rule_id: str) -> None:
    text = page(rule_id)
    at = [text.find(heading) for heading in HEADINGS]
    assert min(at) > 0, [h for h, p in zip(HEADINGS, at, strict=True) if p < 0]
    assert at == sorted(at)


@pytest.mark.parametrize("rule_id", CONTRACT)
def test_rules_say_what_they_bound(rule_id: str) -> None:
    rule = catalogue()[rule_id]
    assert rule.title and not rule.title.endswith(".")
    assert rule.bound in BOUNDS


def test_an_unknown_page_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        page("no.such")
