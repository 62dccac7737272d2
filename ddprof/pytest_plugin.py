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
    "ddprof_budget(run=PATH or run_fixture=NAME, max_step_ms=None, max_exposed_comm=None, fail_on=()): analyze the "
    "training run and fail the test if a step takes longer, communication is exposed for a larger share, or an "
    "expression of `ddprof analyze --fail-on` matches"
)
_KNOWN = {"run", "run_fixture", "max_step_ms", "max_exposed_comm", "fail_on"}


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known to `--strict-markers` and `pytest --markers`."""
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
    """Before a marked test: analyze its run, fail with what is over budget."""
    marker = request.node.get_closest_marker(MARKER)
    if marker is None:
        return
    unknown = sorted(set(marker.kwargs) - _KNOWN)
    if marker.args or unknown:
        raise pytest.UsageError(f"{MARKER}: unknown {', '.join(unknown) or 'positional argument'}; {_HELP}")
    from ddprof.errors import DdprofError

    try:
        run = request.getfixturevalue("ddprof_run")
        violations = _violations(run, marker.kwargs)
    except DdprofError as error:
        pytest.fail(f"ddprof: {error}", pytrace=False)
    if violations:
        pytest.fail("\n".join([f"ddprof: {run.verdict.headline}", *violations]), pytrace=False)


def _path(request: pytest.FixtureRequest, options: dict[str, Any]) -> str:
    if ("run" in options) == ("run_fixture" in options):
        raise pytest.UsageError(f"{MARKER}: give either run=PATH or run_fixture=NAME")
    return str(options["run"] if "run" in options else request.getfixturevalue(options["run_fixture"]))


def _violations(run: AnalyzedRun, options: dict[str, Any]) -> list[str]:
    from ddprof.report.gate import parse_gate

    stated = options.get("fail_on", ())
    expressions = [stated] if isinstance(stated, str) else list(stated)
    if options.get("max_step_ms") is not None:
        expressions.append(f"step>{options['max_step_ms']:.6f}ms")
    if options.get("max_exposed_comm") is not None:
        expressions.append(f"exposed_comm>{options['max_exposed_comm'] * 100:.6f}%")
    found = [violation for expression in expressions for violation in parse_gate(expression).violations(run.report)]
    return [violation.text for violation in found]
