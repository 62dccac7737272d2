"""Run a command in a network namespace of its own whose loopback has a limited rate: a link that is really slow.

    ddprof run -- python -m ddprof.workloads.slow_link --rate 400mbit -- \
        torchrun --standalone --nproc-per-node=2 workloads/mnist_ddp.py --hidden 2048

Needs Linux, `unshare`, `ip` and `tc` with the token bucket queue (tbf), and the right to make a network namespace.
Where one of them is missing it ends with one line. Nothing outside the namespace changes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

SHAPE = 'ip link set lo up && tc qdisc add dev lo root tbf rate "$1" burst 128kb limit 64mb && shift && exec "$@"'
PROBE = ("true",)


def wrapped(rate: str, command: list[str]) -> list[str]:
    """The command line that runs `command` behind a loopback of `rate` (in the words of tc: 400mbit)."""
    return ["unshare", "--net", "--map-root-user", "sh", "-c", SHAPE, "sh", rate, *command]


def obstacle(rate: str) -> str:
    """Why a link cannot be shaped here; "" where it can."""
    missing = [tool for tool in ("unshare", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} not found"
    tried = subprocess.run(wrapped(rate, list(PROBE)), capture_output=True, text=True, check=False)
    return "" if not tried.returncode else (tried.stderr.strip().splitlines() or ["not permitted"])[-1]


def main() -> None:
    """Replace this process by the command behind the slow link."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", default="400mbit", help="as tc writes it")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="-- COMMAND...")
    given = parser.parse_args()
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    if not command:
        parser.error("no command")
    reason = obstacle(given.rate)
    if reason:
        sys.exit(f"slow_link: cannot shape traffic here: {reason}")
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    line = wrapped(given.rate, command)
    os.execvp(line[0], line)


if __name__ == "__main__":
    main()
