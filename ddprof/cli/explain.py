"""`ddprof explain`: the page of a rule or of a check of the training, which is the docstring of its file."""

from __future__ import annotations

import click

from ddprof.errors import UsageError
from ddprof.outside.meant import meant


@click.command("explain")
@click.argument("identifier", required=False, metavar="[ID]")
def command(identifier: str | None) -> None:
    """Explain a finding: what it detects, why it costs, how the gain is priced, how to fix it, limits, sources.

    Without ID, lists every finding that ddprof can make, and what it remarks on the training itself.
    """
    from ddprof.analyzers.catalogue import catalogue, page
    from ddprof.analyzers.training.catalogue import training_checks, training_page

    rules, checks = catalogue(), training_checks()
    titles = {rule.id: rule.title for rule in rules.values()} | {check.id: check.title for check in checks.values()}
    if identifier is None:
        for name, title in titles.items():
            click.echo(f"{name:<28} {title}")
        return
    if identifier not in titles:
        raise UsageError(f"no finding {identifier!r}{meant(identifier, titles)}; `ddprof explain` lists them")
    title = f"{identifier}: {titles[identifier]}"
    text = page(identifier) if identifier in rules else training_page(identifier)
    click.echo(f"{title}\n{'=' * len(title)}\n\n{text}")
