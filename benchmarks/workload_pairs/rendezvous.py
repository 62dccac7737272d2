"""Rendezvous of the processes of a job that is paused at times."""

from __future__ import annotations

import socket


def rendezvous() -> list[str]:
    """torchrun's options for a static rendezvous on a free port: the dynamic kind of --standalone counts an agent that
    is held for long as dead.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return ["--nnodes=1", "--master-addr=127.0.0.1", f"--master-port={port}"]
