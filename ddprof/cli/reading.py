"""The options that control how a run is read: `--workers`, `--cache`, `--engine` and `--ranks`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Any

import click

from ddprof.errors import UsageError


@dataclass(frozen=True)
class Reading:
    """Options of `ddprof.analyzers.engine.Options`, which explains them, by their names there."""

    workers: int | None = None
    cache: bool | str = True
    engine: str = "local"
    ranks: str = "all"
    window: int | None = None
    strict: bool = False
    max_memory: int | None = None


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with these options; it receives them, and those of its own that it reads by, as `reading`."""

    @click.option("--workers", type=click.IntRange(1), help="Processes that read traces (default: by CPU and memory).")
    @cache_options
    @click.option(
        "--engine",
        default="local",
        show_default=True,
        metavar="ENGINE",
        help="Where ranks are read: local processes, dask (a new local cluster), or dask://HOST:PORT.",
    )
    @click.option(
        "--ranks",
        default="all",
        show_default=True,
        help="Ranks to read: all, 0,7, or sample:32 (32 that cover all stages, hosts and tensor-parallel groups).",
    )
    @click.option("--window", type=click.IntRange(1), help="Which trace window to read, from 1 (default: the last).")
    @wraps(command)
    def with_reading(*args: Any, **given: Any) -> Any:
        reads = {field.name: given.pop(field.name) for field in fields(Reading) if field.name in given}
        return command(*args, reading=Reading(**reads), **given)

    return with_reading


def cache_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with `--cache` and `--no-cache`; it receives True, False or the named place as `cache`."""

    @click.option(
        "--cache",
        "place",
        metavar="PLACE",
        help="Cache each rank's facts in this folder, fsspec URL or none. [default: ddprof/facts in the user's cache]",
    )
    @click.option("--no-cache", is_flag=True, help="Do not read or write the cache.")
    @wraps(command)
    def with_cache(*args: Any, place: str | None, no_cache: bool, **given: Any) -> Any:
        if place is not None and no_cache:
            raise UsageError("--cache and --no-cache: want one of them")
        is_off = no_cache or place == "none"
        return command(*args, cache=not is_off and (place or True), **given)

    return with_cache
