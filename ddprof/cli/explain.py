"""`ddprof explain`: the documentation page of a rule or training check, which is its module's docstring."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("identifier", required=False, metavar="[ID]")
def command(identifier: str | None) -> None:
    """Explain a finding: what it detects, why it costs, how the gain is priced, how to fix it, limits, sources.

    Without ID, lists every finding that ddprof can make, and what it remarks on the training itself.
    """
    from ddprof.analyzers.catalogue import page, titles

    if identifier is None:
        for name, title in titles().items():
            click.echo(f"{name:<28} {title}")
        return
    text, name = page(identifier), titles()[identifier]
    text, title = text.removeprefix(f"{name}.").lstrip(), f"{identifier}: {name}"
    click.echo(f"{title}\n{'=' * len(title)}\n\n{text}")
