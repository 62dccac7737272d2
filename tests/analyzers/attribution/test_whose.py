"""A time that few ranks alone have is theirs: no rule can say it of the whole job."""

import numpy as np
import pytest
from corpus import CLEAN, FAULTY
from labelled_runs import Runs

from ddprof.analyzers.attribution.whose import as_theirs, whose
from ddprof.analyzers.catalogue import catalogue
from ddprof.findings import Basis, Candidate, Change


@pytest.mark.parametrize(
    ("times", "who"),
    [
        *(((0.8, 20.0), [1]), ((8.0, 20.0), []), ((20.0, 0.0, 1.0, 18.0), [0, 3]), ((20.0, 20.0, 20.0, 0.0), [])),
        *(((0.0, 0.0), []), ((5.0,), []), ((), [])),
    ],
)
def test_whose_a_time_is(times: tuple[float, ...], who: list[int]) -> None:
    assert whose(np.array(times)).tolist() == who


def test_a_finding_on_the_whole_job_of_one_ranks_time_becomes_that_ranks(labelled: Runs) -> None:
    measures = labelled("clean.ddp").measures
    rest = (0.0,) * (len(measures.job.ranks) - 2)
    said = Candidate("host.x", "waiting", (), 1.0, (Change("no_script"),), Basis.RECORDED, times_us=(0.8, 20.0, *rest))
    found = as_theirs(said, measures)
    assert found.ranks == found.changes[0].ranks == (measures.job.rank_ids[1],)
    assert "rank 1 alone" in found.summary


@pytest.mark.parametrize("name", [*CLEAN, *FAULTY])
def test_no_rule_says_of_the_whole_job_what_few_ranks_have(labelled: Runs, name: str) -> None:
    run = labelled(name)
    for rule in catalogue():
        for said in run.said(rule):
            if isinstance(said, Candidate) and not said.ranks:
                assert not len(whose(np.array(said.times_us))), said


TIMED = ("host.allocator", "host.checkpoint")


@pytest.mark.parametrize("rule", TIMED)
def test_rules_on_what_holds_a_host_say_for_how_long_each_rank_has_it(labelled: Runs, rule: str) -> None:
    run = labelled(rule)
    (said,) = [one for one in run.said(rule) if isinstance(one, Candidate)]
    assert len(said.times_us) == len(run.job.ranks)
