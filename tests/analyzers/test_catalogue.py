"""The catalogue: every identifier of the contract once, each with a whole documentation page."""

from __future__ import annotations

import importlib
import pkgutil

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


def test_each_rule_is_a_file_named_after_its_identifier() -> None:
    modules = [importlib.import_module(f"{rules.__name__}.{m.name}") for m in pkgutil.iter_modules(rules.__path__)]
    own = [module for module in modules if hasattr(module, "RULE")]
    assert len({module.RULE.id for module in own}) == len(own)
    assert all(module.__name__.rsplit(".", 1)[1] == module.RULE.id.replace(".", "_") for module in own)


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
