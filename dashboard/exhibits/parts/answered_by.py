"""Which page shows more of a finding, or of a cause of the ledger."""

from __future__ import annotations

from collections.abc import Mapping

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
_OF_CAUSE: Mapping[str, str] = {
    "compute": "/kernels",
    "comm_transfer": "/communication",
    "comm_wait": "/ranks",
    "memcpy": "/kernels",
    "dataloader": "/host",
    "host_launch": "/host",
    "host_sync": "/host",
    "allocator": "/host",
    "gc": "/host",
    "checkpoint": "/host",
    "pipeline_bubble": "/pipeline",
    "other": "/host",
}


def page_of_finding(identifier: str) -> tuple[str, str] | None:
    """Title and address; None where no page has more."""
    return _OF_FINDING.get(identifier.partition(".")[0])


def page_of_cause(cause: str) -> str | None:
    """Address; None where no page has more: time without a name."""
    return _OF_CAUSE.get(cause)
