"""What no setting reaches is no finding."""

from dataclasses import replace

import pytest
from labelled_runs import Runs, fires

from ddprof.analyzers.settings import advised

ID = "comm.no_overlap"


def test_buckets_that_no_other_size_beats_are_out_of_reach(labelled: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = labelled(ID)
    by_hand = fires(run, ID)
    of_ddp = replace(by_hand, fixes=(replace(by_hand.fixes[0], current="400"),))
    assert advised.out_of_reach(of_ddp, run.pricer) is None  # smaller buckets are faster
    monkeypatch.setattr(advised, "_PLANS", {"bucket_cap_mb": lambda *_: (25.0, True)})
    assert "buckets of other sizes" in (advised.out_of_reach(of_ddp, run.pricer) or "")
    unknown = replace(by_hand, fixes=(replace(by_hand.fixes[0], current=None),))
    assert advised.out_of_reach(unknown, run.pricer) is None  # nobody says that DDP reduces them
    other = replace(of_ddp, changes=(replace(of_ddp.changes[0], kind="rebucket"),))
    assert advised.out_of_reach(other, run.pricer) is None
