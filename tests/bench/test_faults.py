"""The faults of the workloads: every one is switched somewhere, and takes as long as it says."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from ddprof.workloads.arguments import Switches
from ddprof.workloads.catalogue import AS_SETTING, WORKLOADS

SOURCES = Path(__file__).resolve().parents[2] / "workloads"
OUTSIDE = {"shaped-link", "faster"}  # what slow_link.py does, around the job


def test_every_fault_and_every_fix_is_switched_by_name_in_a_script() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCES.glob("*.py") if file.name != "catalogue.py")
    faults = {name: fault for workload in WORKLOADS.values() for name, fault in workload.faults.items()}
    fixes = {fix for fault in faults.values() for fix in fault.fixes}
    assert {name for name in (*faults, *fixes) if f'"{name}"' not in text} - OUTSIDE == set()
    assert set(AS_SETTING) <= fixes


def test_an_amount_takes_the_time_of_the_fault() -> None:
    amounts = pytest.importorskip("ddprof.workloads.amounts", reason="torch is not installed")
    now, done = [0.0], list[int]()

    def work(number: int) -> None:
        done.append(number)
        now[0] += 0.004 if len(done) > 1 else 0.1  # the first call is a cold one

    amount = amounts.Amount(0.1, SimpleNamespace(device=amounts.torch.device("cpu")))
    amount.clock = lambda: now[0]
    amount.of(work)
    assert done[amounts.CALIBRATION_CALLS :] == list(range(25))
    before = now[0]
    amount.of(work)
    assert now[0] - before == pytest.approx(0.1)


@pytest.mark.parametrize(("fault", "shares"), [("uneven-shards", (0.5, 1.5)), ("imbalance", None)])
def test_the_fix_of_unequal_work_is_the_mean(fault: str, shares: tuple[float, float] | None) -> None:
    """Uneven shards give the culprit more in every step, imbalance one rank or the other."""
    loading = pytest.importorskip("ddprof.workloads.loading", reason="torch is not installed")

    def work(fix: str, rank: int) -> list[float]:
        return [loading.share_of_work(Switches(fault, fix, 0.1, rank, 1), step, 2) for step in range(8)]

    first, second = work("", 0), work("", 1)
    assert [sum(pair) for pair in zip(first, second, strict=True)] == [2.0] * 8
    assert (first, second) == tuple([share] * 8 for share in shares) if shares else len(set(first)) == 2
    assert work("balanced", 0) == work("balanced", 1) == [1.0] * 8


def test_workers_are_those_of_the_command_line_before_those_of_the_fault() -> None:
    loading = pytest.importorskip("ddprof.workloads.loading", reason="torch is not installed")
    one_file, fixed = Switches("one-file", "", 0.1, 0, 1), Switches("few-workers", "workers", 0.1, 0, 1)
    assert [loading.workers(one_file, wanted) for wanted in (None, 0, 4)] == [2, 0, 4]
    assert loading.workers(fixed, None) == loading.ENOUGH_WORKERS
    assert loading.workers(Switches("none", "", 0.1, 0, 1), None) == 0
