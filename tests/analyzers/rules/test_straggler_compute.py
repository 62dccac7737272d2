"""One slow device: named with its factor, priced by making it as fast as its peers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from captured import with_sidecars
from labelled_runs import Labelled, Runs, candidate, candidates, fires

from ddprof.analyzers.job.script.alone import Alone
from ddprof.analyzers.job.slowdown import Slowdown
from ddprof.analyzers.rules.straggler_compute import of_slow_device, slow_positions
from ddprof.findings import Candidate

ID = "straggler.compute"


def test_names_and_prices_the_slow_device_unless_its_rank_runs_something_alone(faulty: Labelled) -> None:
    said = fires(faulty, ID, 2)
    assert faulty.pricer.step_us(said.changes) == pytest.approx(faulty.fault["counterfactual_step_us"], rel=0.03)
    (change,) = said.changes
    assert change.kind == "scale_compute" and change.values[0] == pytest.approx(1.3, abs=0.03)
    held = replace(faulty.measures, alone={faulty.job.rank_ids.index(2): Alone("train.py:17 probe()", "", 900.0, 0.0)})
    assert not [found for found in candidates(ID, held) if 2 in found.ranks]


def varying(seed: int, ranks: int, steps: int, spread: float, slow: float) -> Slowdown:
    """Ranks whose work varies by step, the second with a device that takes `slow` times as long."""
    work = np.random.default_rng(seed).normal(1.0, spread, (ranks, steps))
    work[1] *= slow
    relative, whole = work / np.median(work, axis=0), np.ones(ranks)
    return Slowdown(np.median(relative, axis=1), relative, 1e4 * whole, whole, np.zeros(ranks))


@pytest.mark.parametrize("steps", [3, 5, 8])
@pytest.mark.parametrize("ranks", [4, 8])
def test_work_that_varies_by_step_makes_no_rank_slow_by_chance(ranks: int, steps: int) -> None:
    """Sequences of any length, dealt out at random: in 400 healthy runs hardly a rank is called slow; a slow
    device is, the surer the less its peers vary."""
    seeds = range(400)
    assert sum(len(slow_positions(varying(seed, ranks, steps, 0.1, 1.0), 0.05)) > 0 for seed in seeds) <= 16
    assert np.mean([slow_positions(varying(s, ranks, steps, 0.01, 1.1), 0.05).tolist() == [1] for s in seeds]) > 0.99
    assert np.mean([1 in slow_positions(varying(seed, ranks, steps, 0.1, 1.4), 0.05) for seed in seeds]) > 0.7


def test_a_device_that_turns_slow_is_told_with_its_first_slow_step(labelled: Runs) -> None:
    said = fires(labelled("slow device since the fourth step"), ID, 2)
    assert said.summary.endswith("since step 114") and said.evidence[0].text.endswith("from step 114 on, 5 of 8")


@pytest.mark.parametrize(
    "name", ["slow device in a pipeline", "slow host of a whole stage", "device short of power in a pipeline"]
)
def test_a_slow_device_of_a_pipeline_is_no_heavy_stage(labelled: Runs, name: str) -> None:
    run, excess = labelled(name), 0.4 if "short of power" in name else 0.3
    said = fires(run, ID, *run.fault["culprit_ranks"])
    assert said.changes[0].values == pytest.approx([1 + excess] * len(said.ranks), abs=0.05)
    assert "the other stages of the pipeline" in said.summary or len(run.job.ranks) == 4 != len(said.ranks)
    assert run.said("pipeline.imbalance") == []


def gpu(**more: Any) -> dict[str, Any]:
    """A sidecar whose rank's GPU was sampled for two minutes."""
    sampled = {"index": 2, "busy_samples": 120, "sm_clock_mhz": 1900, "power_limit_mw": 700_000, "throttled": {}}
    return {"hardware": {"gpu": {**sampled, **more}}}


def sampled(labelled: Runs, slow: dict[str, Any], peer: dict[str, Any]) -> tuple[Candidate, list[str]]:
    """The finding on rank 2 with these sidecars, and what is said of that rank's device."""
    said = candidate(ID, with_sidecars(labelled(ID), peer, peer, slow, peer))
    return said, [e.text for e in said.evidence if e.rank == 2 and ("GPU" in e.text or "power" in e.text)]


def test_says_what_held_the_device_back_and_how_to_mend_it(labelled: Runs) -> None:
    slow = gpu(throttled={"sw_power_cap": 49, "sw_thermal": 3}, sm_clock_mhz=1410)
    said, texts = sampled(labelled, slow, gpu(throttled={"sw_power_cap": 2}))
    held = "its GPU was throttled by its power limit in 41 % of 120 busy seconds of the run"
    assert texts[0] == f"{held}, the typical peer's in 1.7 %"
    assert texts[1] == "its GPU ran at 1410 MHz on average, the typical peer's at 1900 MHz"
    (fix,) = said.fixes
    assert fix.setting == "power of GPU 2 of the host of rank 2"
    said, texts = sampled(labelled, gpu(throttled={"sw_power_cap": 100}, power_limit_mw=310_000), gpu())
    assert "its power limit is 310 W, the typical peer's 700 W" in texts
    (fix,) = said.fixes
    assert (fix.current, fix.suggested) == ("310 W", "700 W, as on its peers") and fix.patch is not None
    assert "-pl 700" in fix.patch
    said, _ = sampled(labelled, gpu(throttled={"hw_thermal": 60}, temperature_max_c=93), gpu(temperature_max_c=64))
    assert (said.fixes[0].setting, said.fixes[0].current) == ("cooling of GPU 2 of the host of rank 2", "93 °C at most")
    capped = gpu(throttled={"sw_power_cap": 110})
    said, texts = sampled(labelled, capped, capped)
    assert len(texts) == 1 and "throttled no more than they are" in texts[0]
    measures = with_sidecars(labelled(ID), capped, gpu(sm_clock_mhz=1800), gpu(sm_clock_mhz=1000), capped)
    evidence, _ = of_slow_device(measures, (2, 1))  # none was throttled: what is said is said of the slowest
    assert {one.rank for one in evidence} == {2} and said.fixes[0].setting == "device of rank 2"


@pytest.mark.parametrize(
    "sidecar",
    [
        *({}, gpu(busy_samples=3, throttled={"hw_thermal": 3})),
        {"hardware": {"gpu": {"busy_samples": "many", "throttled": [1]}}},
        {"hardware": None},
    ],
    ids=["not captured", "too few samples", "nonsense", "null"],
)
def test_nothing_is_said_of_a_device_that_was_not_watched(labelled: Runs, sidecar: dict[str, Any]) -> None:
    said, texts = sampled(labelled, sidecar, gpu())
    assert texts == [] and said.fixes[0].setting == "device of rank 2"
