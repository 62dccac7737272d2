"""The purpose of a process group follows from its name or its use; else it is a group of N."""

from collections.abc import Callable
from pathlib import Path

import pytest
from labelled_runs import Runs, only_run

from ddprof.report.phrases import run_words


@pytest.mark.parametrize(
    ("name", "roles"), [("clean.ddp", {"dp"}), ("clean.fsdp", {"fsdp_shard"}), ("clean.tpdp", {"dp", "tp"})]
)
def test_groups_that_say_what_they_are_for(labelled: Runs, name: str, roles: set[str]) -> None:
    assert set(labelled(name).job.groups["role"].tolist()) == roles


def test_a_group_without_a_sign_of_its_role_is_a_group_of_its_size(shared_run: Callable[[str], Path]) -> None:
    report = only_run(shared_run("wild/recordings/horovod_late_rank_24")).report
    assert report.run.framework == ()
    assert "24 ranks · device not recorded · horovod ·" in run_words(report)  # no framework is named
