"""The dashboard's runs, on which its page of a running job is tested too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))  # tests/ is not installed

from tests.dashboard.conftest import running, straggler, straggler_traces

__all__ = ["running", "straggler", "straggler_traces"]
