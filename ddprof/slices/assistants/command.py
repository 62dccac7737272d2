"""`ddprof mcp`: answers for assistants on stdin and stdout."""

from __future__ import annotations

import click

from ddprof.errors import UsageError


@click.command("mcp")
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...")
def command(folders: tuple[str, ...]) -> None:
    """Serve verdicts, findings, what-if and comparisons to an assistant, by the Model Context Protocol on stdio.

    It reads runs below the FOLDERs and nothing else, writes to none of them, and opens no port. The assistant starts
    and ends it.

    \b
    ddprof mcp ddprof-runs
    """
    try:
        from ddprof.slices.assistants.server import make_server
    except ImportError as error:
        raise UsageError("ddprof mcp needs the mcp package: pip install 'ddprof[mcp]'") from error
    from ddprof.slices.assistants.answers import Allowed

    make_server(Allowed.of(folders)).run("stdio")
