"""A script as two ranks, without importing torch once more; a rank that fails ends the other as torchrun does."""

import errno
import os
import socket
import subprocess
import sys
import time

# Below what kernels hand out by themselves (32768 and above on Linux, 49152 by RFC 6335): a port of those may be some
# connection's own before rank 0 listens on it, that of the rank which asks for it included.
FIRST, LAST = 10_000, 32_000


def free_port() -> int:
    """A port of the store, another one for each process that looks for one at the same time."""
    for attempt in range(LAST - FIRST):
        port = FIRST + (os.getpid() * 7 + attempt) % (LAST - FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            return port
    raise SystemExit("no free port")


def main() -> None:
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    line, names = [sys.executable, *sys.argv[1:]], ("RANK", "LOCAL_RANK")
    ranks = [subprocess.Popen(line, env={**os.environ, **shared, **dict.fromkeys(names, r)}) for r in "01"]
    while any(rank.poll() is None for rank in ranks) and not any(rank.poll() for rank in ranks):
        time.sleep(0.02)
    first = [rank.returncode for rank in ranks]
    failed = any(first)
    for rank in ranks:
        if failed:
            rank.terminate()
        rank.wait()
    if failed:
        ended = ", ".join(f"rank {r}: {code}" for r, code in enumerate(first))
        print(f"exit codes when the first rank failed (None: it still ran): {ended}", file=sys.stderr, flush=True)
    sys.exit(int(failed))


if __name__ == "__main__":
    main()
