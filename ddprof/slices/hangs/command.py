"""`ddprof hang`: why a job hangs or has failed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace

import click

from ddprof.cli.load import tell
from ddprof.cli.redaction import key_of_redaction, redact_option, redacted_errors
from ddprof.slices.hangs.explain import explain
from ddprof.slices.hangs.model import Hang
from ddprof.slices.hangs.text import hang_document, render_hang


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
    key = key_of_redaction(redact)
    with redacted_errors(key):
        hang = explain(paths)
    if key is not None:
        hang = redacted_hang(hang, key)
    tell(json.dumps(hang_document(hang), indent=1) if as_json else render_hang(hang))


def redacted_hang(hang: Hang, key: bytes) -> Hang:
    """The verdict with its names hidden: files, functions, hosts, groups, messages."""
    from ddprof.report.redaction.redact import redacted_data

    names = {name: kind for kind, name in _names_of(hang) if name}
    return replace(redacted_data(hang, key, names), kind=hang.kind)


def _names_of(hang: Hang) -> Iterator[tuple[str, str]]:
    """(kind, name) of the names that a verdict contains."""
    frames = [hang.frame, *(row.frame for row in hang.rows), *(stuck.frame for stuck in hang.stuck)]
    frames += [worker.frame for row in hang.rows for worker in row.workers]
    for frame in filter(None, frames):
        yield "path", frame.file
        yield "path", frame.file.replace("\\", "/").rsplit("/", 1)[-1]
        yield "name", frame.function
    for row in hang.rows:
        yield "host", row.host
