"""Profiles of other tools that ddprof does not read (here), known by their content, and what makes a trace of each."""

from __future__ import annotations

import re

from ddprof.readers.format import Sample
from ddprof.readers.formats import formats

# (how the file begins, anywhere in its first bytes if it is a pattern, what it is and what to do)
_KNOWN: tuple[tuple[re.Pattern[bytes], str], ...] = (
    (
        re.compile(rb"\A\x00*QDSTRM|\AQDREP"),
        "an unfinished report of Nsight Systems: its QdstrmImporter makes a .nsys-rep of it, and `nsys export --type "
        "sqlite FILE` of that what ddprof reads",
    ),
    (
        re.compile(rb"\Aversion https://git-lfs\.github\.com/spec/"),
        "a pointer of Git LFS, not the file itself: `git lfs pull` fetches it",
    ),
    (
        re.compile(rb"\A(?:\.\./)*(?:\.git/annex|/annex)/objects/"),
        "a pointer of git-annex, not the file itself: `git annex get` fetches it",
    ),
    (
        re.compile(rb'\A\s*\{\s*"rocprofiler-sdk-tool"'),
        "a result of rocprofv3 (rocprofiler-sdk), which ddprof does not read: record with torch.profiler, `ddprof run` "
        "or rocmProfileData",
    ),
)


def foreign(sample: Sample) -> str | None:
    """What the file is and what to do with it, for a person; None where it is none of these."""
    for form in formats().values():
        if form.missing is not None and form.recognise(sample) and (what := form.missing()):
            return what
    return next((what for pattern, what in _KNOWN if pattern.search(sample.head)), None)
