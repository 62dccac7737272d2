"""`ddprof compare`: what changed between two runs, printed or as one self-contained HTML file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ddprof.causes import CAUSES
from ddprof.cli.gates import FAIL_ON_HELP, fail, gates_of
from ddprof.cli.load import load_one
from ddprof.cli.output import chosen_format, output_options, put
from ddprof.cli.reading import Reading, reading_options
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors, redacted_reports
from ddprof.errors import NoUsableInput
from ddprof.report import phrases
from ddprof.report.comparison.compare import Comparison, compare, parse_limit, regressions, to_json
from ddprof.report.comparison.text import comparison_headline, render_markdown, render_text, row_words, step_rows
from ddprof.report.html.markup import Markup, join, table, tag
from ddprof.report.html.parts import legend, step_bar
from ddprof.report.html.style import embedded, page
from ddprof.report.model import Report


@click.command("compare")
@click.argument("before", metavar="BEFORE")
@click.argument("after", metavar="AFTER")
@output_options()
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
    limit = parse_limit(max_regression, "--max-regression") if max_regression else None
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
        violations = regressions(comparison, limit) if limit else []
        for gate in gates:
            keys = {violation.key for violation in gate(first)}
            violations += [v.text for v in gate(second) if v.key not in keys]
        fail(violations)


def _deliver(comparison: Comparison, form: str, output: Path | None) -> None:
    if form == "json":
        text = json.dumps(to_json(comparison), indent=1, allow_nan=False) + "\n"
    else:
        text = {"text": render_text, "markdown": render_markdown, "html": render_html}[form](comparison)
    put(text, output, comparison_headline(comparison))


def render_html(comparison: Comparison) -> str:
    """The whole page, with the comparison's JSON document inside."""
    names = f"{comparison.before.run.name or 'before'} against {comparison.after.run.name or 'after'}"
    body = [
        tag("h1", comparison_headline(comparison)),
        *(tag("p", tag("strong", "Not comparable as they stand: "), text) for text in comparison.differences),
        tag(
            "section",
            tag("h2", "Where the step goes"),
            _bar("Before", comparison.before),
            _bar("After", comparison.after),
        ),
        tag("section", tag("h2", "What changed"), _table(comparison)),
        _findings(comparison),
    ]
    return page(f"ddprof: {names}", names, body, embedded(to_json(comparison)))


def _bar(label: str, report: Report) -> Markup:
    words = f"{label}: {phrases.run_words(report)}"
    return join(tag("p", words), step_bar(report.ledger.job, words), legend(report.ledger.job))


def _table(comparison: Comparison) -> Markup:
    rows = [*step_rows(comparison), *((CAUSES[d.name].label, d) for d in comparison.causes)]
    heads = ["per step", "before", "after", "change", "95 % interval", ""]
    return table(heads, [(name, *row_words(d)) for name, d in rows])


def _findings(comparison: Comparison) -> Markup:
    items = [join("Gone: ", f.summary, " ", tag("code", f.id)) for f in comparison.gone]
    items += [join("New: ", f.summary, " ", tag("code", f.id), f", {phrases.who_words(f)}") for f in comparison.new]
    items += [join("Note: ", text) for text in comparison.notes]
    return tag("section", tag("ul", *(tag("li", item) for item in items))) if items else Markup()
