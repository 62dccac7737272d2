"""`ddprof hang`: why a job hangs or has failed."""

from __future__ import annotations

import json

import click

from ddprof.cli.load import tell
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors


@click.command("hang")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--json", "as_json", is_flag=True, help="Print the JSON document (schema ddprof.hang/1).")
@redact_option
def command(paths: tuple[str, ...], as_json: bool, redact: bool) -> None:
    """Say why a job hangs or has failed: which rank, which collective, which line.

    PATH is a run folder of `ddprof run`, of a job that has ended or still hangs, or a folder or file of what a job
    left: flight-recorder dumps of torch 2.4 and later (pickle or JSON), stacks written by faulthandler or printed by
    `py-spy dump`, with the rank in the name of the file.

    \b
    ddprof hang ddprof-runs/latest
    ddprof hang /tmp/nccl_trace_rank_*
    """
    from ddprof.analyzers.hangs.explain import explain
    from ddprof.report.hang.document import hang_document
    from ddprof.report.hang.text import render_hang

    key = key_of_redaction(redact)
    with redacted_errors(key):
        hang = explain(paths)
    if key is not None:
        from ddprof.report.redaction.redact import redacted_hang

        hang = redacted_hang(hang, key)
    tell(json.dumps(hang_document(hang), indent=1) if as_json else render_hang(hang))
