"""An S3-compatible server in a process of its own, `python stores.py`, which ends where its standard input ends."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

READY = "serving "


def variables(address: str) -> dict[str, str]:
    """Variables of the environment by which drivers reach the server."""
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    return {"AWS_ENDPOINT_URL": address, "AWS_DEFAULT_REGION": "us-east-1", **keys}


@contextmanager
def serving() -> Iterator[str]:
    """The address of a server that runs meanwhile."""
    with subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith(READY), "the server did not start"
            yield line.removeprefix(READY).strip()
        finally:
            process.kill()


def main() -> None:
    """Serve on a free port of the loopback until standard input ends."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    print(f"{READY}http://127.0.0.1:{port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
