"""Stores behind fsspec URLs: driver, file metadata, and errors.

Drivers raise whatever their libraries raise; here all of it becomes an OSError with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

AT_ONCE = 10  # files asked for side by side: as many as botocore keeps connections for (max_pool_connections)
# What drivers call a digest or a number that changes with the content (s3fs, gcsfs, adlfs and webdav, Hugging Face),
# and when it was written (s3fs, adlfs, pyarrow and sftp, webdav, gcsfs, memory).
_TAGS = ("ETag", "etag", "generation", "blob_id")
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "updated", "created")

_S3 = ("s3://", "s3a://")
CONNECT_S = 3  # SYN is sent again after one second, and after two more
ATTEMPTS = 3  # of AWS's own standard mode: https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html

_refusals = 0


@dataclass(frozen=True)
class RemoteFile:
    """A file listed by a store: full URL, size in bytes, and time of writing, unix s (0: unknown).

    `stamp` changes with the content; "" where the store has neither a digest nor a time.
    """

    url: str
    size_bytes: int
    written_s: float = 0.0
    stamp: str = ""


@contextmanager
def store_at(url: str) -> Iterator[tuple[Any, str]]:
    """The driver of a URL, and the path in its store.

    Raises ImportError where a package is missing; other errors inside the block become OSErrors.
    """
    with reasons():
        import fsspec  # a tenth of the start-up time of an analysis, for those who read from elsewhere

        yield fsspec.core.url_to_fs(url, **driver_options(url))


def driver_options(url: str) -> dict[str, Any]:
    """Driver options of a URL with which an unresponsive store fails within seconds.

    botocore by default waits a minute to connect and retries five times. User settings (fsspec's configuration,
    AWS_MAX_ATTEMPTS, AWS_RETRY_MODE, ~/.aws/config) take precedence.
    """
    if not url.startswith(_S3):
        return {}
    import fsspec

    try:
        from botocore.session import Session
    except ImportError:  # told by fsspec, which then has no driver
        return {}
    of_user: dict[str, Any] = dict(fsspec.config.conf.get("s3", {}).get("config_kwargs", {}))
    chosen: dict[str, Any] = {"connect_timeout": CONNECT_S}
    session = Session()
    if session.get_config_variable("max_attempts") is None and session.get_config_variable("retry_mode") == "legacy":
        chosen["retries"] = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    return {"config_kwargs": chosen | of_user}


@contextmanager
def reasons() -> Iterator[None]:
    """Turn errors of a driver into OSErrors of one line."""
    global _refusals
    try:
        yield
    except Exception as error:
        _refusals += 1
        if isinstance(error, OSError | ImportError):
            raise
        raise OSError(_reason(error)) from error


def refusals() -> int:
    """Number of requests of this process that a store refused; results made meanwhile may lack their data."""
    return _refusals


def remote_file(system: Any, info: Mapping[str, Any]) -> RemoteFile:
    """A file, from its driver's listing."""
    tag, written = _first(info, _TAGS), _first(info, _TIMES)
    size_bytes = int(info.get("size") or 0)
    stamp = "" if tag is None and written is None else f"{size_bytes} {tag} {written}"
    return RemoteFile(str(system.unstrip_protocol(info["name"])), size_bytes, _unix_s(written), stamp)


def _first(info: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((info[name] for name in names if info.get(name)), None)


def _unix_s(written: Any) -> float:
    """Seconds of a driver's time value: a number, a datetime, or its text."""
    try:
        if isinstance(written, str):
            written = datetime.fromisoformat(written.replace("Z", "+00:00"))
        return float(written.timestamp() if isinstance(written, datetime) else written or 0)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _reason(error: Exception) -> str:
    text = str(error) or type(error).__name__
    if "credential" in f"{type(error).__name__} {text}".lower():
        return f"{text.rstrip('.')} (the store's own environment variables and files give them)"
    return text
