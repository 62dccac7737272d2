"""The trace generator: the same seed gives the same files, and its labels agree with the traces it writes; its rules
for the ledger, applied to the hand-labelled samples, give the samples' own ledgers. Written traces are read back
independently of the writer and of ddprof's readers (the standard json module only)."""

import gzip
import json
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from benchmarks.oracle import generate
from benchmarks.oracle.device import Collective, DeviceOp
from benchmarks.oracle.faults import build
from benchmarks.oracle.kinds import KNOWN_KINDS, scenario
from benchmarks.oracle.ledger import CAUSES, booked, ledger, per_step
from benchmarks.oracle.mess.catalogue import MESSES
from benchmarks.oracle.rank import Occupant
from benchmarks.oracle.simulate import simulate
from benchmarks.oracle.write import write
from ddprof.causes import CAUSE_IDS

# Kind -> a seed that draws a small run of it; together they have every layout of files and both clocks.
SEEDS = {
    "clean.plain": 34, "straggler.compute": 7, "straggler.imbalance": 6, "input.starved": 13, "comm.latency_bound": 35,
    "host.gc": 20, "host.checkpoint": 19, "host.allocator": 3, "pipeline.imbalance": 1,
    "straggler.compute+host.checkpoint": 17,
}  # fmt: skip
CLEAN_SEED = 18
BLOCKING_CALL_US = 50.0  # a copy call this long waited for its copy
SAMPLES = 10
WAITS = ("comm_wait", "pipeline_bubble")
TOLERANCE = 1e-3  # of the wall
ROUNDING_US = 0.02  # label numbers carry two decimals
CLOCK_US = 2.5  # how far the slowest member's kernel may outlast another's, and drift left after correction


def load(folder: Path) -> tuple[dict[str, Any], dict[int, list[dict[str, Any]]]]:
    """The label and, by rank, the events of a scenario folder."""
    label = json.loads((folder / "label.json").read_text())
    events = {}
    for path in sorted((folder / "traces").glob("*.json.gz")):
        with gzip.open(path, "rt") as stream:
            trace = json.load(stream)
        info = trace.get("distributedInfo")
        events[int(info["rank"] if info else path.name.split("rank")[1].split(".")[0])] = trace["traceEvents"]
    return label, events


def generated(folder: Path, *words: str) -> dict[str, bytes]:
    """Files that the generator writes into a folder, by their places in it."""
    assert generate.main([str(folder), *words]) == 0
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def true_time(label: dict[str, Any], rank: int, first: float, last: float) -> Any:
    """A function from local to true time: the host's offset (and drift around the middle) taken away."""
    clock = label["clock"]["hosts"][label["hosts"][str(rank)]]
    offset, drift, middle = clock["offset_us"], clock["drift_ppm"] * 1e-6, (first + last) / 2
    return lambda ts: ts - offset - drift * (ts - middle)


def marks(events: list[dict[str, Any]]) -> list[float]:
    """The step marks: every step's start, and one microsecond after the last step's end."""
    ranges = (e for e in events if e.get("cat") == "user_annotation")
    steps = sorted((e["ts"], e["dur"]) for e in ranges if e["name"].startswith(("ProfilerStep", "training_step")))
    return [*(ts for ts, _ in steps), steps[-1][0] + steps[-1][1] + 1.0]


def occupants(events: list[dict[str, Any]]) -> list[Occupant]:
    """Activities of host threads, by the names in the trace."""
    named = {"Python GC": "gc", "save_checkpoint": "checkpoint", "cudaStreamSynchronize": "host_sync"}
    found = []
    for e in events:
        if e["ph"] != "X" or e.get("cat") in ("kernel", "gpu_memcpy", "gpu_user_annotation"):
            continue
        cause = "dataloader" if e["name"].startswith("enumerate(DataLoader)") else named.get(e["name"])
        if e["name"] == "cudaMemcpyAsync" and e["dur"] > BLOCKING_CALL_US:
            cause = "host_sync"
        if cause:
            found.append(Occupant(e["ts"], e["ts"] + e["dur"], cause))
    return found


def ranks_from(label: dict[str, Any], events: dict[int, list[dict[str, Any]]]) -> list[Any]:
    """Input of `ledger.booked` for each rank, in true time, with collectives matched across ranks."""
    met: dict[tuple[Any, ...], Collective] = {}
    result = []
    for rank, rows in sorted(events.items()):
        launches = {e["args"]["correlation"]: e["ts"] for e in rows if e.get("cat") == "cuda_runtime"}
        own, ops = marks(rows), []
        at = true_time(label, rank, own[0], own[-1])
        counts: dict[tuple[Any, ...], int] = defaultdict(int)
        for e in sorted((e for e in rows if e.get("cat") in ("kernel", "gpu_memcpy")), key=lambda e: e["ts"]):
            comm = "ccl" in e["name"]
            cause = "comm" if comm else "compute" if e["cat"] == "kernel" else "memcpy"
            op = DeviceOp(rank, e["tid"], cause, e["name"], e["dur"])
            op.start, op.end = at(e["ts"]), at(e["ts"]) + e["dur"]
            op.launch_start = at(launches[e["args"]["correlation"]])
            if comm:
                op.collective = meet(met, counts, rank, e["args"])
                op.collective.members.append(op)
                op.collective.last_arrival = max(op.collective.last_arrival, op.start)
            ops.append(op)
        busy = [Occupant(at(o.start), at(o.end), o.cause) for o in occupants(rows)]
        result.append(SimpleNamespace(rank=rank, ops=ops, occupants=busy, marks=[at(t) for t in own]))
    return result


def meet(met: dict[Any, Collective], counts: dict[Any, int], rank: int, args: dict[str, Any]) -> Collective:
    """The rendezvous of a call: by group, or by pair for sends and receives, and by order."""
    peer = args.get("Dst Rank", args.get("Src Rank"))
    pair = tuple(sorted((rank, peer))) if peer is not None else ()
    channel = (args["Process Group Name"], args["Process Group Ranks"], pair)
    key = (*channel, counts[channel])
    counts[channel] += 1
    return met.setdefault(key, Collective(2 if pair else args["Group size"], 0.0, {}))


class Written(NamedTuple):
    """A written scenario read back: its label, its events by rank, and its ranks in true time."""

    label: dict[str, Any]
    events: dict[int, list[dict[str, Any]]]
    ranks: list[Any]


@pytest.fixture(scope="module", params=SEEDS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Written:
    target = tmp_path_factory.mktemp("oracle") / request.param
    write(simulate(scenario(SEEDS[request.param], request.param)), target)
    label, events = load(target)
    return Written(label, events, ranks_from(label, events))


def test_same_seed_same_bytes(tmp_path: Path) -> None:
    words = ("--count", "1", "--kinds", "host.gc", "--seed")
    first, again, other = (generated(tmp_path / at, *words, n) for at, n in zip("abc", "778", strict=True))
    assert first == again
    one, another = (next(data for at, data in some.items() if at.endswith("label.json")) for some in (first, other))
    assert one != another
    messy = ("--messy", "--messes", "nested", "--count", "1", "--seed", "6", "--kinds", "clean.gc")
    assert generated(tmp_path / "d", *messy) == generated(tmp_path / "e", *messy)


def test_kinds_and_messes_are_listed_and_an_unknown_one_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in (["--kinds", "no.such"], ["--messy", "--messes", "mud"]):
        with pytest.raises(SystemExit) as stop:
            generate.main([str(tmp_path / "out"), *words])
        assert stop.value.code == 2 and words[-1] in capsys.readouterr().err and not (tmp_path / "out").exists()
    assert generate.main(["--list"]) == 0 and capsys.readouterr().out.split() == list(KNOWN_KINDS)
    assert generate.main(["--list-messes"]) == 0 and set(MESSES) <= set(capsys.readouterr().out.split())


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


def test_the_oracle_keeps_its_own_list_of_causes_in_the_same_order() -> None:
    """It imports nothing of ddprof, so that a mistake cannot cancel itself out."""
    assert CAUSES == CAUSE_IDS


def test_every_sample_ledger_is_reproduced(shared_dir: Path) -> None:
    """Per rank and cause within 0.1 % of the wall (waiting and bubble are one pool: they differ by a budget only)."""
    folders = sorted(path.parent for path in (shared_dir / "oracle_samples").glob("*/label.json"))
    assert len(folders) == SAMPLES
    for folder in folders:
        label, events = load(folder)
        for rank in ranks_from(label, events):
            truth = label["ledger"]["per_rank"][str(rank.rank)]
            table = per_step(rank, booked(rank))
            for causes in (WAITS, *((cause,) for cause in CAUSES if cause not in WAITS)):
                mean, told = sum(row[c] for row in table for c in causes) / len(table), sum(truth[c] for c in causes)
                assert mean == pytest.approx(told, abs=1e-3 * truth["wall_us"]), (folder.name, rank.rank, causes)
