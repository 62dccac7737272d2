"""What ranks wait for others, by what made those late."""

import numpy as np
import pytest
from labelled_runs import Runs

from ddprof.analyzers.job.charged import waited_for_part_us, waited_us


@pytest.mark.parametrize("slow_alone", [False, True])
def test_waiting_for_hosts_is_shared_out_by_the_reason_of_each_culprit(labelled: Runs, slow_alone: bool) -> None:
    measures = labelled("straggler.host").measures
    charged_us = [waited_us(measures, ("host_launch",), np.array([rank])).sum() for rank in range(4)]
    culprits = [int(np.argmax(charged_us))] if slow_alone else [0, 1, 2, 3]
    part_us = measures.launching_us * np.arange(1, 5) / 4
    every_us = measures.launching_us + measures.stalled_us + measures.held_us + measures.script_us
    wanted = sum(
        part_us[culprit] / every_us[culprit] * waited_us(measures, ("host_launch",), np.array([culprit]))
        for culprit in culprits
        if every_us[culprit]
    )
    found = waited_for_part_us(measures, part_us, np.array(culprits))
    assert found.max() > 0
    assert found.tolist() == np.asarray(wanted).tolist()
