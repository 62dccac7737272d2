"""ddprof: why distributed PyTorch training is slow, what to change, and what it will save."""

from __future__ import annotations

from pathlib import Path as _Path
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if __name__ != "ddprof":  # a checkout's folder, which is on `__path__` below, holds this package as well
    raise ImportError(f"import ddprof, not {__name__}: a second copy would register everything twice")

from ddprof._version import __version__
from ddprof.marks import annotate, capture, step

if _TYPE_CHECKING:
    from ddprof.api import AnalyzedRun, analyze

# In a source checkout analyzers/, dashboard/, workloads/ and sample_traces/ stand beside this package and are parts of
# it (pyproject's package-dir); an installed copy never meets the condition.
_ROOT = _Path(__file__).resolve().parent.parent
if (_ROOT / "pyproject.toml").is_file() and (_ROOT / "analyzers").is_dir():
    __path__ = [*__path__, str(_ROOT)]

__all__ = ["AnalyzedRun", "__version__", "analyze", "annotate", "capture", "step"]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> _Any:
    if name in {"AnalyzedRun", "analyze"}:
        from ddprof import api

        return getattr(api, name)
    raise AttributeError(f"module 'ddprof' has no attribute {name!r}")
