"""The two runs that most tests of rules begin with."""

import pytest
from labelled_runs import Labelled, Runs


@pytest.fixture
def faulty(request: pytest.FixtureRequest, labelled: Runs) -> Labelled:
    """The run with the fault that the rule of the module (`ID`) finds."""
    return labelled(request.module.ID)


@pytest.fixture
def healthy(labelled: Runs) -> Labelled:
    return labelled("clean.ddp")
