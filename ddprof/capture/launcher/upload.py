"""Run folders on object stores: captured on local disk, uploaded when the job has ended."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ddprof.capture.files.layout import MANIFEST, host_label


def is_url(out: str) -> bool:
    """Whether `--out` names an fsspec URL (s3://, gs://, memory://) rather than a folder."""
    return "://" in out


def upload(folder: Path, url: str) -> str:
    """Copy the run folder below `url` and return its address. Raises OSError or what the store's driver raises.

    Tasks of one job on several hosts, each with a folder of its own, meet there: a second manifest gets a name of its
    own.
    """
    import fsspec  # heavy, and only the launching process needs it

    files, target = fsspec.core.url_to_fs(f"{url.rstrip('/')}/{folder.name}")
    files.makedirs(target, exist_ok=True)  # object stores have no folders, file systems behind a URL do
    for path in sorted(folder.iterdir()):
        if stat.S_ISREG(path.lstat().st_mode):  # a link may lead to a file that was never meant to leave this host
            again = path.name == MANIFEST and files.exists(f"{target}/{MANIFEST}")
            name = f"manifest.{host_label()}.{os.getpid()}.json" if again else path.name
            files.put_file(str(path), f"{target}/{name}")
    return str(files.unstrip_protocol(target))
