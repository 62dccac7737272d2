"""The trace generator: the same seed gives the same files, and its labels agree with the traces it writes."""

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import traces

from benchmarks.oracle import generate
from benchmarks.oracle.faults import build
from benchmarks.oracle.kinds import KNOWN_KINDS, scenario
from benchmarks.oracle.ledger import CAUSES, booked, ledger, per_step
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write

# Kind -> a seed that draws a small run of it; together they have every layout of files and both clocks.
SEEDS = {
    "clean.plain": 34, "straggler.compute": 7, "straggler.imbalance": 6, "input.starved": 13, "comm.latency_bound": 35,
    "host.gc": 20, "host.checkpoint": 19, "host.allocator": 3, "pipeline.imbalance": 1,
    "straggler.compute+host.checkpoint": 17,
}  # fmt: skip
CLEAN_SEED = 18
TOLERANCE = 1e-3  # of the wall
ROUNDING_US = 0.02  # label numbers carry two decimals
CLOCK_US = 2.5  # how far the slowest member's kernel may outlast another's, and drift left after correction


class Written(NamedTuple):
    """A written scenario read back: its label, its events by rank, and its ranks in true time."""

    label: dict[str, Any]
    events: dict[int, list[dict[str, Any]]]
    ranks: list[Any]


@pytest.fixture(scope="module", params=SEEDS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    target = tmp_path_factory.mktemp("oracle") / request.param
    write(simulate(scenario(SEEDS[request.param], request.param)), target)
    label, events = traces.load(target)
    return Written(label, events, traces.ranks_from(label, events))


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    words = ("--count", "1", "--kinds", "host.gc", "--seed")
    first, again, other = (
        traces.generated(tmp_path / name, *words, seed) for name, seed in zip("abc", "778", strict=True)
    )
    assert first == again
    one, another = (next(data for at, data in some.items() if at.endswith("label.json")) for some in (first, other))
    assert one != another


def test_kinds_are_listed_and_an_unknown_one_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        generate.main([str(tmp_path / "out"), "--kinds", "no.such"])
    assert stop.value.code == 2 and "no.such" in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert generate.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == list(KNOWN_KINDS)


def test_the_ledger_sums_to_the_wall_and_counterfactuals_do_not_exceed_the_step(written: Written) -> None:
    book = written.label["ledger"]
    for row in (*book["per_rank"].values(), book["job"]):
        assert sum(row[cause] for cause in CAUSES) == pytest.approx(row["wall_us"], abs=ROUNDING_US * len(CAUSES))
        assert min(row.values()) >= 0.0
    # Removing a fault saves time; removing all of them saves at least as much as the best single one.
    label = written.label
    assert label["clean"] == (not label["faults"])
    if label["clean"]:
        assert label["recoverable_us"] == 0.0 and label["acceptable_finding_ids"] == []
        return
    for fault in label["faults"]:
        assert fault["share"] >= 0.03 and fault["counterfactual_step_us"] < label["step_us"]
        assert fault["recoverable_range_us"][0] <= fault["recoverable_us"] <= fault["recoverable_range_us"][1]
    assert label["counterfactual_step_us"] <= min(f["counterfactual_step_us"] for f in label["faults"]) + 1.0


def test_clean_runs_have_nothing_to_gain() -> None:
    """No setting or cause of a clean run is worth three percent of the step."""
    for kind in ("clean.hidden_comm", "clean.jitter", "clean.slow_clock", "clean.tpdp"):
        found = scenario(CLEAN_SEED, kind)
        run = simulate(found)
        job = ledger(run)["job"]
        assert not found.faults
        assert simulate(found, build(found, comm_free=True)).step_us() > 0.97 * run.step_us(), kind
        for cause in ("dataloader", "host_sync", "memcpy", "gc", "checkpoint", "allocator", "comm_transfer"):
            assert float(job[cause]) < 0.03 * run.step_us(), (kind, cause)  # type: ignore[arg-type]


def test_traces_agree_with_the_ledger_and_every_launch_has_its_flow(written: Written) -> None:
    """Device time recomputed from the written events gives the label's compute, communication and copies."""
    for rank in written.ranks:
        truth = written.label["ledger"]["per_rank"][str(rank.rank)]
        table = per_step(rank, booked(rank))
        got = {cause: sum(row[cause] for row in table) / len(table) for cause in CAUSES}
        waited = got["comm_wait"] + got["comm_transfer"]
        expected = truth["comm_wait"] + truth["comm_transfer"] + truth["pipeline_bubble"]
        for seen, told in ((got["compute"], truth["compute"]), (got["memcpy"], truth["memcpy"]), (waited, expected)):
            assert seen == pytest.approx(told, abs=TOLERANCE * truth["wall_us"])
    # Each kernel and copy has a launch with its correlation id and both ends of a flow.
    for rows in written.events.values():
        device = {e["args"]["correlation"] for e in rows if e.get("cat") in ("kernel", "gpu_memcpy")}
        calls = {e["args"]["correlation"] for e in rows if e.get("cat") == "cuda_runtime"}
        ends = {phase: {e["id"] for e in rows if e["ph"] == phase} for phase in "sf"}
        assert device <= calls and ends["s"] == ends["f"] == device


def test_causality_after_removing_clock_offsets(written: Written) -> None:
    """In true time no member of a collective ends before the last one arrived, and all members are there."""
    label = written.label
    together: dict[int, list[Any]] = defaultdict(list)
    for rank in written.ranks:
        for op in rank.ops:
            assert op.start >= op.launch_start - CLOCK_US
            if op.collective is not None:
                together[id(op.collective)].append(op)
    present = label["world_size"] - len(label["missing_ranks"])
    assert together
    for members in together.values():
        assert len(members) == members[0].collective.size or present < label["world_size"]
        assert min(op.end for op in members) >= max(op.start for op in members) - CLOCK_US
        assert max(op.end for op in members) - min(op.end for op in members) <= 2.0 * CLOCK_US
