"""Process groups: their purpose from name or use, else a group of N; nameless ones from the streams they run on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kineto_run import Script, loaded
from labelled_runs import Runs, abstains, only_run, run_of, sample_run

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.channels import nameless_groups
from ddprof.report.phrases import run_words


@pytest.mark.parametrize("name, roles", [("clean.ddp", "dp"), ("clean.fsdp", "fsdp_shard"), ("clean.tpdp", "dp tp")])
def test_groups_that_say_what_they_are_for(labelled: Runs, name: str, roles: str) -> None:
    assert set(labelled(name).job.groups["role"].tolist()) == set(roles.split())


OF_GRADIENTS, OF_PARAMETERS = (0, "reduce_scatter all_gather update"), (0, "reduce_scatter update all_gather")
ROLES = {(2**20, "update"): "tp", (2**10, "update"): "dp", (0, "update"): "dp"}  # losses or statistics are few bytes


@pytest.mark.parametrize("done, role", [*ROLES.items(), (OF_GRADIENTS, "dp"), (OF_PARAMETERS, "fsdp_shard")])
def test_the_role_of_a_nameless_group(tmp_path: Path, done: tuple[int, str], role: str) -> None:
    """Ranks sum 2^20 elements in each backward pass, fewer or none in the forward pass; then do this."""
    scripts = [Script(), Script()]
    for script in scripts:
        for _ in script.steps(3):
            for phase, elements in (("forward", done[0]), ("backward", 2**20)):
                with script.frame(f"ddprof::{phase}", "user_annotation"):
                    script.launch()
                    if elements:
                        script.reduce(script.now_us + 100.0, elements)
                    script.synchronise()
            for name in done[1].split():
                with script.frame("Optimizer.step#SGD.step" if name == "update" else "train", "user_annotation"):
                    script.host("aten::add_", 10.0)
                    if name != "update":
                        script.reduce(script.now_us + 100.0, op=name)
    assert loaded(scripts, tmp_path).job.groups["role"].tolist() == [role]


def test_a_group_without_a_sign_of_its_role_is_a_group_of_its_size(shared_run: Callable[[str], Path]) -> None:
    report = only_run(shared_run("wild/recordings/horovod_late_rank_24")).report
    assert report.run.framework == ()
    assert "24 ranks · device not recorded · horovod ·" in run_words(report)  # no framework is named


@pytest.mark.parametrize(("size", "ranks"), [(64, ",".join(map(str, range(64)))), (32, "")])
def test_a_group_whose_list_is_abbreviated_has_the_size_it_states(size: int, ranks: str) -> None:
    def abbreviated(facts: RankFacts) -> RankFacts:
        groups = tuple(replace(g, ranks=(), size=size) if len(g.ranks) == 4 else g for g in facts.process_groups)
        return replace(facts, process_groups=groups, identity=replace(facts.identity, world_size=64))

    run = run_of([abbreviated(facts) for facts in sample_run("slow_gpu").job.ranks[:2]])  # rank 2 is late
    (row,) = [i for i, name in enumerate(run.job.groups["name"]) if name == "0"]
    assert (run.job.groups["size"][row], run.job.groups["ranks"][row]) == (size, ranks)
    assert not run.job.instances["complete"][run.job.instances["group"] == row].any()
    assert not any(t.is_whole for t in run.measures.comm.traffic if t.group_size == size)
    assert "62 missing ranks" in abstains("comm.bandwidth_bound", run.measures)
    assert [f.id for f in run.report.findings] == []


def swapped(facts: RankFacts) -> RankFacts:
    """The rank as its file would be had its window opened while the other stream was busy."""
    track = facts.comms["track"]
    low, high = np.unique(track).tolist()
    return replace(facts, comms=facts.comms.replace(track=np.where(track == low, high, low)))


def test_groups_do_not_depend_on_which_stream_came_first(labelled: Runs) -> None:
    ranks = labelled("mesh without arguments").job.ranks
    usual = nameless_groups(ranks)
    assert sorted(set(usual.values())) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    mixed = nameless_groups([swapped(facts) if p in (1, 2) else facts for p, facts in enumerate(ranks)])
    for position, facts in enumerate(ranks):
        tracks = np.unique(facts.comms["track"]).tolist()
        there = tracks[::-1] if position in (1, 2) else tracks
        assert [mixed[position, track] for track in there] == [usual[position, track] for track in tracks]


def test_a_window_that_opened_later_lacks_the_first_operations(labelled: Runs) -> None:
    unmarked = [replace(facts, step_source="annotation") for facts in labelled("mesh without arguments").job.ranks]
    late = [replace(f, comms=f.comms.take(slice(len(f.comms) // 3 * (p == 3), None))) for p, f in enumerate(unmarked)]
    assert nameless_groups(late) == nameless_groups(unmarked)
    assert run_of(late).job.instances["complete"].mean() > 0.5
