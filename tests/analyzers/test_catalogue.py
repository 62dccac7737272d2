"""The catalogue: every identifier of the contract once, each with a documentation page, a test file and its manners."""

import ast
import importlib
from pathlib import Path

import pytest
from captured import steps_alone
from labelled_runs import Runs, candidates

from ddprof.analyzers import rules
from ddprof.analyzers.catalogue import catalogue, page
from ddprof.errors import UsageError
from ddprof.findings import Abstention

CONTRACT = (
    "input.starved input.straggler input.pageable_copy input.unsharded comm.latency_bound comm.no_overlap "
    "comm.bandwidth_bound comm.slow_link comm.sharding straggler.compute straggler.imbalance straggler.host "
    "host.launch_bound host.sync host.gc host.checkpoint host.allocator pipeline.bubble pipeline.imbalance "
    "memory.headroom compute.precision compute.unfused_optimizer"
)
OWN = [rule_id for rule_id, rule in catalogue().items() if rule.detect.__module__.startswith(rules.__name__)]
HEADINGS = ("What it detects:", "Why it costs:", "How the gain is priced:", "How to fix:", "Limits:", "Sources:")
OF_EACH_RANK = ("host.sync", "host.gc", "host.checkpoint", "host.allocator", "memory.headroom", "input.starved")


def test_every_identifier_of_the_contract_has_a_rule_and_a_test() -> None:
    """A file named after it, or a row of the tables in test_rules.py."""
    assert set(CONTRACT.split()) <= set(OWN)
    folder = Path(__file__).parent / "rules"
    tests, tables = {path.stem for path in folder.glob("test_*.py")}, (folder / "test_rules.py").read_text("utf-8")
    without = {rule_id for rule_id in OWN if f"test_{rule_id.replace('.', '_')}" not in tests}
    assert {rule_id for rule_id in without if f'    "{rule_id}": ' not in tables} == set()


def test_each_file_of_the_rules_ends_in_one_rule_and_is_named_after_it() -> None:
    files = sorted(path for path in Path(rules.__path__[0]).glob("*.py") if path.stem != "__init__")
    own = {path: importlib.import_module(f"{rules.__name__}.{path.stem}").RULE for path in files}
    assert all(path.stem == rule.id.replace(".", "_") for path, rule in own.items())
    last = {path: ast.unparse(ast.parse(path.read_text(encoding="utf-8")).body[-1]) for path in files}
    assert [path.stem for path in files if not last[path].startswith("RULE = Rule(")] == []


@pytest.mark.parametrize("rule_id", OWN)
def test_pages_answer_every_question_in_order(rule_id: str) -> None:
    text, rule = page(rule_id), catalogue()[rule_id]
    at = [text.find(heading) for heading in HEADINGS]
    assert min(at) > 0, [h for h, p in zip(HEADINGS, at, strict=True) if p < 0]
    assert at == sorted(at)
    assert rule.title and not rule.title.endswith(".")
    assert rule.bound in {"compute", "input", "communication", "straggler", "host", "pipeline", "memory"}


@pytest.mark.parametrize("rule_id", OWN)
def test_steps_alone_show_nothing(labelled: Runs, rule_id: str) -> None:
    """A trace of step marks and nothing else: a rule abstains, with its reason, or has nothing to say."""
    for said in catalogue()[rule_id].detect(steps_alone(labelled("clean.ddp"))):
        assert isinstance(said, Abstention), said
        assert said.id == rule_id and said.reason


def test_an_unknown_page_names_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match=r"no finding 'input.stragler' \(did you mean input.straggler\?\)"):
        page("input.stragler")


@pytest.mark.parametrize("name", OF_EACH_RANK)
def test_of_a_job_with_one_traced_rank_nothing_is_said_of_all_ranks(labelled: Runs, name: str) -> None:
    said = candidates(name, labelled(name).only(1))
    assert said
    for found in said:
        assert not any(words in found.summary for words in ("all ranks", "every rank", "the ranks", "typical rank"))
        assert "rank 1" in found.summary
