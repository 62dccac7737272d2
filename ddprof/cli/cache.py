"""`--cache` and `--no-cache` of every command that reads traces."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from ddprof.errors import UsageError


def cache_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a command the two options, and their meaning as `cache`: True, False, or the place that was named."""

    @click.option(
        "--cache",
        "place",
        metavar="PLACE",
        help="Keep the facts of every rank in this folder, or at this fsspec URL, for the next analysis, and use those "
        "that were kept. [default: ddprof/facts in the user's cache]",
    )
    @click.option("--no-cache", is_flag=True, help="Neither use nor keep facts from an earlier analysis.")
    @wraps(command)
    def with_cache(*args: Any, place: str | None, no_cache: bool, **given: Any) -> Any:
        if place is not None and no_cache:
            raise UsageError("--cache and --no-cache: want one of them")
        return command(*args, cache=place or not no_cache, **given)

    return with_cache
