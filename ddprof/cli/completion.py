"""`ddprof completion`: the script that gives a shell completion of commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the shell completion script.

    \b
    bash:  eval "$(ddprof completion bash)"   in ~/.bashrc
    zsh:   eval "$(ddprof completion zsh)"   in ~/.zshrc
    fish:  ddprof completion fish > ~/.config/fish/completions/ddprof.fish
    """
    shell_class = get_completion_class(shell)
    assert shell_class is not None  # click ships these three
    click.echo(shell_class(ctx.find_root().command, {}, "ddprof", "_DDPROF_COMPLETE").source())
