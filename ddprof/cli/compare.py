"""`ddprof compare`: what changed between two runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click

from ddprof.cli.gates import FAIL_ON_HELP, fail, gates_of
from ddprof.cli.load import load_one, say, tell
from ddprof.cli.output import FORMATS, chosen_format, write_file
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors, redacted_reports
from ddprof.errors import NoUsableInput, UsageError
from ddprof.report.comparison.compare import Comparison, compare, to_json
from ddprof.report.comparison.html import render_html
from ddprof.report.comparison.text import headline, render_markdown, render_text
from ddprof.units import format_share, format_us

_LIMIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(%|us|ms|s)")
_UNITS_US = {"us": 1.0, "ms": 1e3, "s": 1e6}


@click.command("compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Default: text, or what the suffix of -o means.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, not to stdout."
)
@click.option("--max-regression", metavar="LIMIT", help="Exit with 3 if the step got slower by more: 5%, 10ms.")
@click.option(
    "--fail-on", multiple=True, metavar="EXPR", help=f"{FAIL_ON_HELP} Only what BEFORE does not have as well."
)
@click.option("--allow-different", is_flag=True, help="Let gates judge runs of different size, device or backend.")
@redact_option
@reading_options
def command(
    before: str,
    after: str,
    form: str | None,
    output: Path | None,
    max_regression: str | None,
    fail_on: tuple[str, ...],
    allow_different: bool,
    redact: bool,
    reading: Reading,
) -> None:
    """Say which cause changed from BEFORE to AFTER, by how much, and whether it may be noise.

    Both are run folders, traces, or saved JSON reports.

    \b
    ddprof compare ddprof-runs/a ddprof-runs/b
    ddprof compare main.json ddprof-runs/latest --max-regression 5%
    """
    gates = gates_of(fail_on)
    limit = _parse_limit(max_regression) if max_regression else None
    key = key_of_redaction(redact)  # one for both: a host that is in both has one hash
    with redacted_errors(key):
        first, second = load_one(before, reading), load_one(after, reading)
        first, second = redacted_reports([first, second], key)
        comparison = compare(first, second)
        _deliver(comparison, chosen_format(form, output), output)
        if comparison.differences and (gates or limit) and not allow_different:
            raise NoUsableInput(
                f"a gate cannot judge this: {comparison.differences[0]} (--allow-different judges it anyway)"
            )
        violations = _regressions(comparison, limit) if limit else []
        for gate in gates:
            known = {violation.key for violation in gate.violations(first)}
            violations += [v.text for v in gate.violations(second) if v.key not in known]
        fail(violations)


def _parse_limit(text: str) -> tuple[float, str]:
    """ "5%" -> (5.0, "%"). Raises UsageError."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"--max-regression {text}: want a share or a time per step, like 5% or 10ms")
    return float(found.group(1)), found.group(2)


def _regressions(comparison: Comparison, limit: tuple[float, str]) -> list[str]:
    """The step's regression in words, where it is over the limit and more than noise (or the noise is not known)."""
    value, unit = limit
    step = comparison.step
    allowed_us = step.before_us * value / 100 if unit == "%" else value * _UNITS_US[unit]
    if step.change_us <= allowed_us or step.outcome == "noise":
        return []
    share = step.change_us / step.before_us
    return [f"the step is {format_us(step.change_us)} ({format_share(share)}) slower, allowed is {value:g}{unit}"]


def _deliver(comparison: Comparison, form: str, output: Path | None) -> None:
    if form == "json":
        text = json.dumps(to_json(comparison), indent=1, allow_nan=False) + "\n"
    else:
        text = {"text": render_text, "markdown": render_markdown, "html": render_html}[form](comparison)
    if output is None:
        tell(text)
        return
    write_file(output, text)
    say(headline(comparison))
    say(f"wrote {output}")
