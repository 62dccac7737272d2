"""The catalogue: every identifier of the contract once, each with a documentation page, a test file and its manners."""

import ast
import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from captured import steps_alone
from labelled_runs import Runs, candidates, run_of

from ddprof.analyzers import rules
from ddprof.analyzers.catalogue import catalogue, page
from ddprof.analyzers.diagnose import CONDITIONS, checked, left_out, unmatched_us
from ddprof.analyzers.job.measures import Measures
from ddprof.errors import UsageError
from ddprof.findings import Abstention, Alters, Fix
from ddprof.report.model import Report
from ddprof.sidecar import Sidecar

CONTRACT = (
    "input.starved input.straggler input.pageable_copy input.unsharded comm.latency_bound comm.no_overlap "
    "comm.bandwidth_bound comm.slow_link comm.sharding straggler.compute straggler.imbalance straggler.host "
    "host.launch_bound host.sync host.gc host.checkpoint host.allocator pipeline.bubble pipeline.imbalance "
    "memory.headroom compute.precision compute.unfused_optimizer"
)
FOLDER = Path(rules.__path__[0])
OWN = [rule_id for rule_id, rule in catalogue().items() if rule.detect.__module__.startswith(rules.__name__)]
HEADINGS = ("What it detects:", "Why it costs:", "How the gain is priced:", "How to fix:", "Limits:", "Sources:")
TRAFFIC = ("comm.latency_bound", "comm.no_overlap", "comm.bandwidth_bound")
RANKS = ("straggler.compute", "straggler.imbalance", "straggler.unexplained")
# Words of a change to what is computed, in a setting, a suggestion or a patch.
ALTERING = re.compile(
    r"no_sync\(|register_comm_hook\(|autocast|dist\.barrier|larger, if memory|cache, decode"
    r"|all_reduce\((?:metrics|total)\)"
)
OF_EACH_RANK = ("host.sync", "host.gc", "host.checkpoint", "host.allocator", "memory.headroom", "input.starved")


def test_every_identifier_of_the_contract_has_a_rule_and_a_test() -> None:
    """A file named after it, or a row of the tables in test_rules.py."""
    assert set(CONTRACT.split()) <= set(OWN)
    tests = Path(__file__).parent / "rules"
    without = {rule_id for rule_id in OWN if not (tests / f"test_{rule_id.replace('.', '_')}.py").exists()}
    tables = (tests / "test_rules.py").read_text("utf-8")
    assert {rule_id for rule_id in without if f'    "{rule_id}": ' not in tables} == set()


def test_each_file_of_the_rules_ends_in_one_rule_and_is_named_after_it() -> None:
    files = sorted(path for path in FOLDER.glob("*.py") if path.stem != "__init__")
    own = {path: importlib.import_module(f"{rules.__name__}.{path.stem}").RULE for path in files}
    assert all(path.stem == rule.id.replace(".", "_") for path, rule in own.items())
    last = {path: ast.unparse(ast.parse(path.read_text(encoding="utf-8")).body[-1]) for path in files}
    assert [path.stem for path in files if not last[path].startswith("RULE = Rule(")] == []


@pytest.mark.parametrize("rule_id", OWN)
def test_pages_answer_every_question_in_order(rule_id: str) -> None:
    text, rule = page(rule_id), catalogue()[rule_id]
    at = [text.find(heading) for heading in HEADINGS]
    assert min(at) > 0 and at == sorted(at), dict(zip(HEADINGS, at, strict=True))
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
    summaries = [candidate.summary for candidate in candidates(name, labelled(name).only(1))]
    assert summaries and all("rank 1" in summary for summary in summaries)
    assert not re.findall("all ranks|every rank|the ranks|typical rank", " ".join(summaries))


def report_of(runs: Runs, name: str, *positions: int) -> Report:
    """The report on the run as if only these ranks had been traced."""
    return run_of([runs(name).job.ranks[p] for p in positions]).report


def test_traffic_without_a_traced_partner_is_not_judged(labelled: Runs) -> None:
    report = report_of(labelled, "straggler.compute", 0)  # it waits for another, which bytes do not explain
    reasons = {abstention.id: abstention.reason for abstention in report.abstentions}
    assert all("the partner was not traced" in reasons[rule_id] for rule_id in TRAFFIC)
    assert set(report.checked).isdisjoint(TRAFFIC) and "report lacks, or waiting" in report.verdict.headline


def test_a_job_is_judged_where_it_was_seen_whole(labelled: Runs) -> None:
    reasons = {abstention.id: abstention.reason for abstention in report_of(labelled, "clean.ddp", 0, 1, 2).abstentions}
    assert {reasons[rule_id] for rule_id in RANKS} == {"compared 3 of 4 ranks: without rank 3"}
    whole = labelled("clean.ddp")
    assert unmatched_us(whole.measures) == 0.0 and {*TRAFFIC, *RANKS} <= set(whole.report.checked)
    assert [said for rule in catalogue().values() for said in left_out(rule, whole.measures)] == []


def test_waiting_for_a_rank_that_is_not_in_the_report_is_no_plain_communication(labelled: Runs) -> None:
    """Without the slow one of four ranks its peers' waits and transfers cannot be told apart."""
    run = labelled("straggler.compute")
    others = [p for p, rank in enumerate(run.job.rank_ids) if [rank] != run.fault["culprit_ranks"]]
    said = report_of(labelled, run.name, *others).verdict.headline
    assert "with ranks that this report lacks, or waiting for them" in said, said


def fixes(path: Path) -> list[ast.Call]:
    calls = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    return [call for call in calls if isinstance(call.func, ast.Name) and call.func.id == "Fix"]


@pytest.mark.parametrize("path", list(filter(fixes, sorted(FOLDER.rglob("*.py")))), ids=lambda path: path.stem)
def test_a_fix_whose_words_alter_what_is_computed_says_so(path: Path) -> None:
    for call in fixes(path):
        if ALTERING.search(ast.unparse(call)):
            assert any(keyword.arg == "alters" for keyword in call.keywords), ast.unparse(call)


def test_every_kind_of_change_has_a_condition() -> None:
    assert set(CONDITIONS) == set(Alters)
    assert all(len(words.split()) <= 20 and words.startswith("Check first that ") for words in CONDITIONS.values())


@pytest.mark.parametrize("drew", [False, True, None])
def test_what_draws_random_numbers_is_kept_on_a_condition(drew: bool | None) -> None:
    measures: Any = SimpleNamespace(job=SimpleNamespace(ranks=[SimpleNamespace(sidecar=Sidecar(fetch_draws=drew))]))
    assert bool(checked(Fix("", "", "", "", alters=Alters.KEPT), measures).condition) is (drew is not False)


def test_compiling_a_model_is_not_said_to_lower_its_precision() -> None:
    fix = Fix("torch.compile", "torch.compile(model)", "launches cost", "PyTorch", applies=(("compile", True),))
    assert not checked(fix, cast(Measures, None)).condition
