"""The dashboard's runs, on which its page of a running job is tested too."""

from tests.dashboard.conftest import running, straggler, straggler_traces

__all__ = ["running", "straggler", "straggler_traces"]
