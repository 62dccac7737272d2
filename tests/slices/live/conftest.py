"""The dashboard's runs, on which its page of a running job is tested too."""

from tests.dashboard.conftest import drawn, running, straggler, straggler_traces

__all__ = ["drawn", "running", "straggler", "straggler_traces"]
