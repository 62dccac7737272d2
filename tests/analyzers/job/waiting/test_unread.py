"""Waits for ranks that were not read."""

from labelled_runs import Runs

from ddprof.analyzers.engine import Options, load_runs
from ddprof.analyzers.job.waiting.unread import unread_wait_ns


def test_collectives_of_which_all_members_were_read_wait_for_nobody_else(labelled: Runs) -> None:
    (run,) = load_runs([labelled("clean.tpdp").traces], Options(cache=False))
    assert not unread_wait_ns(run.job).any()
    (two,) = load_runs([labelled("clean.tpdp").traces], Options(cache=False, ranks="0,3"))
    assert len(unread_wait_ns(two.job)) == len(two.job.groups)
    assert unread_wait_ns(two.job).sum() < 0.03 * two.job.step_ns * len(two.job.per_step_ns)
