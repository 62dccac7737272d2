"""pytest plugin: `@pytest.mark.ddprof_budget(...)` fails a test whose training run is over budget.

pytest imports this file in every session of every project that has ddprof installed, so the analysis is imported only
when a test carries the marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ddprof.api import AnalyzedRun

MARKER = "ddprof_budget"
_HELP = (
    "ddprof_budget(run=PATH or run_fixture=NAME, max_step_ms=None, max_exposed_comm=None, fail_on=(), baseline=None, "
    "max_regression='5%'): analyze the training run and fail the test if a step takes longer, communication is exposed "
    "for a larger share, or an expression of `ddprof analyze --fail-on` matches; with `baseline`, a saved report kept "
    "beside the tests, if the step got slower than that by more than max_regression, and only if what matches is new"
)
_KNOWN = {"run", "run_fixture", "max_step_ms", "max_exposed_comm", "fail_on", "baseline", "max_regression"}
UPDATE = "--ddprof-update-baselines"
_LIMIT = "5%"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that rewrites baselines."""
    words = "write the run of each ddprof_budget(baseline=...) as its baseline instead of judging it"
    parser.getgroup("ddprof").addoption(UPDATE, action="store_true", help=words)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker for `--strict-markers` and `pytest --markers`."""
    config.addinivalue_line("markers", _HELP)


@pytest.fixture
def ddprof_run(request: pytest.FixtureRequest) -> AnalyzedRun:
    """The analyzed run that the test's `ddprof_budget` marker names."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        raise pytest.UsageError("the fixture ddprof_run needs the marker ddprof_budget(run=...)")
    from ddprof.api import analyze

    return analyze(_path(request, marker.kwargs))


@pytest.fixture(autouse=True)
def _ddprof_budget(request: pytest.FixtureRequest) -> None:
    """Before a marked test, analyze its run and fail where it is over budget."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return
    unknown = sorted(set(marker.kwargs) - _KNOWN)
    if marker.args or unknown:
        raise pytest.UsageError(f"{MARKER}: unknown {', '.join(unknown) or 'positional argument'}; {_HELP}")
    from ddprof.errors import DdprofError

    try:
        run = request.getfixturevalue("ddprof_run")
        violations = _violations(run, marker.kwargs) + _against_baseline(request.config, run, marker.kwargs)
    except DdprofError as error:
        pytest.fail(f"ddprof: {error}", pytrace=False)
    if violations:
        pytest.fail("\n".join([f"ddprof: {run.verdict.headline}", *violations]), pytrace=False)


def _path(request: pytest.FixtureRequest, options: dict[str, Any]) -> str:
    if ("run" in options) == ("run_fixture" in options):
        raise pytest.UsageError(f"{MARKER}: give either run=PATH or run_fixture=NAME")
    return str(options["run"] if "run" in options else request.getfixturevalue(options["run_fixture"]))


def _violations(run: AnalyzedRun, options: dict[str, Any]) -> list[str]:
    """One line per exceeded budget; without a baseline also the violations of `fail_on`."""
    from ddprof.report.gate import parse_gate

    expressions = [] if options.get("baseline") else _expressions(options)
    if options.get("max_step_ms") is not None:
        expressions.append(f"step>{options['max_step_ms']:.6f}ms")
    if options.get("max_exposed_comm") is not None:
        expressions.append(f"exposed_comm>{options['max_exposed_comm'] * 100:.6f}%")
    violations = [violation for expression in expressions for violation in parse_gate(expression)(run.report)]
    return [violation.text for violation in violations]


def _against_baseline(config: pytest.Config, run: AnalyzedRun, options: dict[str, Any]) -> list[str]:
    """One line per regression against the baseline report; with the option, rewrite that report instead."""
    if not options.get("baseline"):
        return []
    from ddprof.api import load
    from ddprof.report.comparison.compare import compare, parse_limit, regressions
    from ddprof.report.gate import parse_gate

    file = config.rootpath / options["baseline"]
    if config.getoption(UPDATE):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(run.to_json() + "\n", encoding="utf-8")
        return []
    if not file.is_file():
        return [f"{options['baseline']}: no such baseline; `pytest {UPDATE}` writes it, to be committed"]
    limit = parse_limit(str(options.get("max_regression", _LIMIT)), "max_regression")
    before = load(file).report
    comparison = compare(before, run.report)
    if comparison.differences:
        return [f"cannot be judged against {options['baseline']}: {comparison.differences[0]}"]
    worse = regressions(comparison, limit)
    for gate in map(parse_gate, _expressions(options)):
        before_keys = {violation.key for violation in gate(before)}
        worse += [violation.text for violation in gate(run.report) if violation.key not in before_keys]
    return worse


def _expressions(options: dict[str, Any]) -> list[str]:
    stated = options.get("fail_on", ())
    return [stated] if isinstance(stated, str) else list(stated)
