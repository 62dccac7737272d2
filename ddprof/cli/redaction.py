"""The `--redact` option of every command; hashing and vocabulary are imported only where it is given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ddprof.errors import DdprofError
from ddprof.report.model import Report

redact_option = click.option(
    "--redact", is_flag=True, help="Replace private names, paths and hosts with keyed hashes; verdicts stay."
)


def key_of_redaction(redact: bool) -> bytes | None:
    """The key of the hashes; None without `--redact`."""
    if not redact:
        return None
    from ddprof.report.redaction.redact import redaction_key

    return redaction_key()


def redacted_reports(reports: list[Report], key: bytes | None) -> list[Report]:
    """The reports redacted with `key`; unchanged where it is None."""
    if key is None:
        return reports
    from ddprof.report.redaction.redact import redacted

    return [redacted(report, key) for report in reports]


@contextmanager
def redacted_errors(key: bytes | None) -> Iterator[None]:
    """With `key`, redact the messages of errors raised inside the block."""
    try:
        yield
    except DdprofError as error:
        if key is None:
            raise
        from ddprof.report.redaction.redact import redacted_data

        raise type(error)(redacted_data(str(error), key)) from error
