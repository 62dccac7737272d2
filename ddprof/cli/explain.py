"""`ddprof explain`: the page of a rule, which is the docstring of its file."""

from __future__ import annotations

import click

from ddprof.errors import UsageError


@click.command("explain")
@click.argument("identifier", required=False, metavar="[ID]")
def command(identifier: str | None) -> None:
    """Explain a finding: what it detects, why it costs, how the gain is priced, how to fix it, limits, sources.

    Without ID, lists every finding that ddprof can make.
    """
    from ddprof.analyzers.catalogue import catalogue, page

    rules = catalogue()
    if identifier is None:
        for rule in rules.values():
            click.echo(f"{rule.id:<28} {rule.title}")
        return
    if identifier not in rules:
        raise UsageError(f"no finding {identifier!r}; `ddprof explain` lists them")
    title = f"{identifier}: {rules[identifier].title}"
    click.echo(f"{title}\n{'=' * len(title)}\n\n{page(identifier)}")
