"""Barriers and collectives of objects: found where they cost, priced by what is left without them."""

from dataclasses import replace
from pathlib import Path

import pytest
from captured import sidecar_of
from kineto_run import Script
from labelled_runs import Runs

from ddprof.analyzers.facts.model import COMMS, NAMED_SPANS
from ddprof.analyzers.facts.script.calls import called_name, is_meeting
from ddprof.analyzers.job.host_costs import held_in_meetings_us
from ddprof.analyzers.replay.changes.communication.retiming import drop_meetings
from ddprof.analyzers.rules.comm_barrier import _is_usual
from ddprof.findings import Change

ID = "comm.barrier"


def test_it_is_priced_by_the_step_without_the_calls(labelled: Runs) -> None:
    run = labelled("barriers in every step")
    (found,) = (f for f in run.report.findings if f.id == ID)
    assert "barrier calls" in found.summary and "20 barrier calls per step" in found.evidence[0].text
    predicted_us = run.report.steps.wall_us - found.recoverable_us.value
    assert predicted_us == pytest.approx(run.fault["counterfactual_step_us"], rel=0.01)


def script(calls: list[str], cat: str) -> Script:
    """Three steps; in each the host calls these for 300 us each, then launches."""
    made = Script()
    for _ in made.steps(3):
        for name in calls:
            made.host(name, 300.0, cat)
        made.launch(dur_us=40.0, times=5)
    return made


@pytest.mark.parametrize(
    ("name", "cat", "is_known"),
    [
        ("ddprof::collective.all_gather_object", "user_annotation", True),
        ("ddprof::collective.broadcast_object_list", "user_annotation", True),
        ("c10d::barrier", "cpu_op", True),
        *(("ddprof::collective.all_reduce", "user_annotation", False), ("all_gather_object", "user_annotation", False)),
        *((name, "user_annotation", False) for name in ("my/barrier.py(3): barrier", "c10d::allreduce_")),
    ],
)
def test_calls_are_known_by_every_name_and_others_are_not(tmp_path: Path, name: str, cat: str, is_known: bool) -> None:
    facts = script([name], cat).facts(tmp_path)
    assert len(facts.meetings) == 3 * is_known and not is_meeting(facts).any()
    assert not is_known or called_name(name) in ("all_gather_object", "broadcast_object_list", "barrier")
    # The first step begins at its first kernel.
    assert held_in_meetings_us(facts) == (pytest.approx(217.0, abs=1.0) if is_known else 0.0)


@pytest.mark.parametrize(("seen", "saves", "named"), [(True, False, True), (False, False, False), (True, True, False)])
def test_calls_of_some_steps_count_where_none_saves(tmp_path: Path, seen: bool, saves: bool, named: bool) -> None:
    """Two in each of two steps of nine: before and after a save they go with it."""
    made = Script()
    for step in made.steps(9):
        made.launch(dur_us=40.0, times=5)
        for _ in range(2 * (step in (2, 6))):
            made.host("ddprof::collective.all_gather_object", 300.0, "user_annotation")
            if saves:
                made.host("save_checkpoint", 300.0, "user_annotation")
    facts = replace(made.facts(tmp_path), sidecar=sidecar_of({"state": "exit"} if seen else {}))
    assert len(facts.meetings) == 4 and _is_usual(facts) == named


def test_a_rank_without_communication_holds_no_price_up(labelled: Runs) -> None:
    run = labelled("barriers in every step")
    job, graph = run.job, run.pricer.graph
    silent = replace(job.ranks[0], comms=COMMS.empty(), meetings=NAMED_SPANS.empty())
    members = job.members.take(job.members["rank"] != 0)
    alone = replace(run.measures, job=replace(job, ranks=(silent, *job.ranks[1:]), members=members))
    ranks = (replace(graph.ranks[0], facts=silent), *graph.ranks[1:])
    scenario = drop_meetings(Change("drop_meetings"), replace(graph, ranks=ranks), alone)
    assert scenario.dissolved and not (scenario.transfer_ns[0] != graph.ranks[0].ops.transfer_ns).any()
