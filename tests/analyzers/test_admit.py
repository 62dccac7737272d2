"""The evidence that the facts of a file give for which job it is of."""

from dataclasses import replace

import numpy as np
from labelled_runs import Runs

from ddprof.analyzers.admit import recording
from ddprof.analyzers.facts.names import POINT_TO_POINT
from ddprof.model import Identity
from ddprof.readers.admission.jobs import split_jobs


def test_messages_connect_the_stages_of_a_pipeline_that_has_no_collectives(labelled: Runs) -> None:
    ranks = labelled("clean.pp").job.ranks
    assert all(np.isin(facts.comms["op"], POINT_TO_POINT).all() for facts in ranks)
    silent = [recording(replace(facts, identity=Identity(None, "order"))) for facts in ranks]
    assert all(each.communications and each.group_ranks for each in silent)
    assert split_jobs(silent) == [[0, 1]]
