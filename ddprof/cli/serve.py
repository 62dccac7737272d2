"""`ddprof serve`: the dashboard."""

from __future__ import annotations

import secrets
import signal
from urllib.parse import urlencode

import click

from ddprof.cli.load import progress_bar, say
from ddprof.errors import UsageError

MIN_TOKEN_CHARS = 16
DEFAULT_UPLOAD_MIB = 256  # some tens of ranks of a few steps, packed; more is better served from where it lies


@click.command("serve")
@click.argument("paths", nargs=-1, required=True, metavar="RUN...")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to bind to.")
@click.option("--port", default=8050, show_default=True, type=click.IntRange(0, 65535), help="0: any free port.")
@click.option(
    "--token",
    envvar="DDPROF_TOKEN",
    help="Secret that every visitor needs (default: a new one). Lists of processes show options, but not the variable.",
    show_envvar=True,
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Let every user and program of this machine read the runs and upload traces (loopback only).",
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A further host name to answer to, such as that of a proxy. Repeatable.",
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
@click.option(
    "--perfetto-ui",
    metavar="URL",
    help="Perfetto UI that the timeline's button opens (default: https://ui.perfetto.dev). The trace goes from the "
    "page to that tab, nothing is uploaded.",
)
def command(
    paths: tuple[str, ...],
    host: str,
    port: int,
    token: str | None,
    no_token: bool,
    names: tuple[str, ...],
    workers: int | None,
    max_upload: int,
    perfetto_ui: str | None,
) -> None:
    """Show runs in the browser: verdict, findings, timeline, what-if.

    RUN is a run folder, traces, or a saved JSON report. A folder that is still being written refreshes by itself.
    Open the link that is printed: it holds the token, which the browser then keeps in a cookie.

    \b
    ddprof serve ddprof-runs/latest
    ssh -L 8050:localhost:8050 cluster     then open the link that it prints there
    """
    try:
        from ddprof.dashboard.http import make_server
        from ddprof.dashboard.runs.open_run import load
        from ddprof.dashboard.runs.perfetto import PERFETTO_UI, checked_ui
        from ddprof.dashboard.runs.served import Runs
        from ddprof.dashboard.server.guard import Access, is_loopback
    except ModuleNotFoundError as error:
        raise UsageError(f"the dashboard needs {error.name}: pip install 'ddprof[dashboard]'") from error
    access = Access(_token(token, no_token, is_loopback(host)), host, tuple(name.lower() for name in names))
    perfetto_ui = checked_ui(perfetto_ui or PERFETTO_UI)
    with progress_bar() as progress:
        open_runs = load(paths, workers, progress)
    server = make_server(Runs(paths, open_runs, workers), port, access, max_upload * 2**20, perfetto_ui)
    for opened in open_runs:
        say(opened.report.verdict.headline)
    if not is_loopback(host):
        say(f"warning: {host} can be reached from other machines, unencrypted; the token is all that protects the run")
    if access.token is None:
        say("warning: without a token every user and program of this machine may read the run and upload traces")
    shown = f"[{host}]" if ":" in host else host
    link = f"http://{shown}:{server.server_port}/" + (f"?{urlencode({'token': access.token})}" if access.token else "")
    click.echo(f"ddprof: open {link}   (Ctrl+C stops)", err=True)  # with its token, which `say` would mask
    # An interpreter that a signal ends removes nothing: uploads would stay on the disk.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    open_runs[0].expect_timeline()  # while somebody opens the link
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        say("stopped")
    finally:
        server.server_close()


def _token(stated: str | None, is_open: bool, on_loopback: bool) -> str | None:
    """The server's access token; None where anyone on this machine may read. Raises UsageError."""
    if is_open:
        if stated is not None or not on_loopback:
            raise UsageError("--no-token: " + ("beside --token" if stated is not None else "only on loopback"))
        return None
    if stated is not None and len(stated) < MIN_TOKEN_CHARS:
        raise UsageError(f"the token must have at least {MIN_TOKEN_CHARS} characters")
    return stated or secrets.token_urlsafe(24)
