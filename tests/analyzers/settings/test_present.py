"""What a run's own settings are taken for."""

from dataclasses import replace

import pytest
from captured import sidecar_of
from labelled_runs import Runs

from ddprof.analyzers.settings.present import present


@pytest.mark.parametrize("written", ["<script>", [], True, float("nan"), None])
def test_captured_settings_that_are_no_numbers_are_not_known(labelled: Runs, written: object) -> None:
    run = labelled("clean.ddp")
    settings = sidecar_of({"dataloader": {"num_workers": written, "prefetch_factor": 3}, "ddp": written})
    found = present(replace(run.measures, settings=settings), {})
    assert (found.num_workers, found.prefetch_factor, found.bucket_cap_mb) == (None, 3, None)
    assert present(replace(run.measures, settings=settings), {"num_workers": 2.0}).num_workers == 2
