"""The upload form, as its page and the server know it: field, header and the words of a refusal."""

from __future__ import annotations

from ddprof.units import format_bytes

# A page elsewhere can send a form to a loopback address, but no header of its own without being allowed to.
HEADER = "X-Ddprof-Upload"
FIELD = "files"


def too_large_words(limit_bytes: int) -> str:
    """Why an upload is refused, and what to do."""
    limit = format_bytes(limit_bytes)
    return f"the upload is larger than {limit}: serve the files themselves (ddprof serve PATH), or raise --max-upload"
