"""Files and fsspec URLs as stored, and their errors in one line."""

from __future__ import annotations

import lzma
import struct
import tarfile
import zipfile
import zlib
from typing import IO

from ddprof.readers.files.remote import is_url, open_remote
from ddprof.untrusted.regular_files import open_regular

# What damage raises in an archive; RuntimeError: a member with a password, packed in a way unknown to zipfile, or
# headers of headers; the others: numbers in headers that are none, or not believable.
ARCHIVE_DAMAGE = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError),
    *(ValueError, KeyError, OverflowError),
)
UNREADABLE = (OSError, ImportError, *ARCHIVE_DAMAGE)


def open_file(path: str, head_only: bool = False) -> IO[bytes]:
    """A regular local file or an fsspec URL, opened for reading as it is stored.

    `head_only`: little more than the first bytes is wanted. Raises OSError, ValueError or ImportError (no package for
    the URL's protocol).
    """
    return open_remote(path, head_only) if is_url(path) else open_regular(path)


def one_line(error: BaseException) -> str:
    """First line of an error's text, as tarfile has one line per kind of packing."""
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text).splitlines()[0]
