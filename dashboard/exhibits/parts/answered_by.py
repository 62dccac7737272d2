"""Which page shows more of a finding, or of a cause of the ledger."""

from __future__ import annotations

from collections.abc import Mapping

from ddprof.causes import CAUSES

# By the first part of a finding's identifier: title and address.
_OF_FINDING: Mapping[str, tuple[str, str]] = {
    "comm": ("communication", "/communication"),
    "compute": ("kernels", "/kernels"),
    "host": ("input and host", "/host"),
    "input": ("input and host", "/host"),
    "memory": ("memory", "/memory"),
    "pipeline": ("the pipeline", "/pipeline"),
    "straggler": ("ranks and steps", "/ranks"),
}
# By what a step that is mostly of a cause is bound by. What no cause explains is on the page of what the host did.
_OF_BOUND: Mapping[str, str] = {
    "communication": "/communication",
    "compute": "/kernels",
    "host": "/host",
    "input": "/host",
    "none": "/host",
    "pipeline": "/pipeline",
    "straggler": "/ranks",
}


def page_of_finding(identifier: str) -> tuple[str, str] | None:
    """Title and address; None where no page has more."""
    return _OF_FINDING.get(identifier.partition(".")[0])


def page_of_cause(cause: str) -> str:
    """Address."""
    return _OF_BOUND[CAUSES[cause].bound]
