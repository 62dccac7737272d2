"""`--redact` of every command. The hashing and the words to look for are imported where it was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import click

from ddprof.errors import DdprofError
from ddprof.report.model import Report

redact_option = click.option(
    "--redact",
    is_flag=True,
    help="Replace private names, paths and hosts with keyed hashes; verdicts stay.",
)


def key_of_redaction(redact: bool) -> bytes | None:
    """The key of the hashes; None where nothing is to be redacted."""
    if not redact:
        return None
    from ddprof.report.redaction.redact import redaction_key

    return redaction_key()


def redacted_reports(reports: list[Report], key: bytes | None) -> list[Report]:
    """The reports as they may be shown; as they are where there is no key."""
    if key is None:
        return reports
    from ddprof.report.redaction.redact import redacted

    return [redacted(report, key) for report in reports]


@contextmanager
def redacted_errors(key: bytes | None) -> Iterator[None]:
    """With `key`: errors that are raised inside name nothing that is not public."""
    try:
        yield
    except DdprofError as error:
        if key is None:
            raise
        from ddprof.report.redaction.redact import redacted_data

        raise type(error)(redacted_data(str(error), key)) from error
