"""`ddprof serve`: the dashboard."""

from __future__ import annotations

import secrets
import signal

import click

from ddprof.cli.load import say
from ddprof.cli.progress import progress_bar
from ddprof.errors import UsageError

MIN_TOKEN_CHARS = 16
DEFAULT_UPLOAD_MIB = 256  # some tens of ranks of a few steps, packed; more is better served from where it lies


@click.command("serve")
@click.argument("paths", nargs=-1, required=True, metavar="RUN...")
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to bind to. Beyond loopback a token is needed."
)
@click.option("--port", default=8050, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option(
    "--token", envvar="DDPROF_TOKEN", help="Secret that every visitor must bring (default beyond loopback: a new one)."
)
@click.option("--workers", type=click.IntRange(1), help="Processes that read traces (default: by CPU).")
@click.option(
    "--max-upload",
    default=DEFAULT_UPLOAD_MIB,
    show_default=True,
    type=click.IntRange(0),
    metavar="MIB",
    help="Largest upload that the page Data takes, in MiB; 0: none.",
)
def command(
    paths: tuple[str, ...], host: str, port: int, token: str | None, workers: int | None, max_upload: int
) -> None:
    """Show runs in the browser: verdict, findings, timeline, what-if.

    RUN is a run folder, traces, or a saved JSON report. A folder that is still being written refreshes by itself.

    \b
    ddprof serve ddprof-runs/latest
    ssh -L 8050:localhost:8050 cluster     then open http://127.0.0.1:8050
    """
    try:
        from ddprof.dashboard.runs.open_run import load
        from ddprof.dashboard.runs.served import Runs
        from ddprof.dashboard.server.guard import is_loopback
        from ddprof.dashboard.server.http import make_server
    except ModuleNotFoundError as error:
        raise UsageError(f"the dashboard needs {error.name}: pip install 'ddprof[dashboard]'") from error
    if token is not None and len(token) < MIN_TOKEN_CHARS:
        raise UsageError(f"--token: at least {MIN_TOKEN_CHARS} characters")
    if token is None and not is_loopback(host):
        token = secrets.token_urlsafe(24)
    with progress_bar() as progress:
        open_runs = load(paths, workers, progress)
    server = make_server(Runs(paths, open_runs, workers), host, port, token, max_upload * 2**20)
    for opened in open_runs:
        say(opened.report.verdict.headline)
    if not is_loopback(host):
        say(f"warning: {host} can be reached from other machines, unencrypted; the token is all that protects the run")
    shown = f"[{host}]" if ":" in host else host
    say(f"open http://{shown}:{server.server_port}/" + (f"?token={token}" if token else "") + "   (Ctrl+C stops)")
    # An interpreter that a signal ends removes nothing: uploads would stay on the disk.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("stopped")
    finally:
        server.server_close()
