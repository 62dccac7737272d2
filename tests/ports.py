"""Ports of this machine that nobody listens on."""

import socket


def free_port(address: str = "127.0.0.1") -> int:
    with socket.create_server((address, 0)) as server:
        return int(server.getsockname()[1])
