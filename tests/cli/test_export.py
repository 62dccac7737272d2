"""`ddprof export` says what it wrote."""

import csv
import gzip
import json
from pathlib import Path

import pytest

from ddprof.cli.export import parse_ranks
from ddprof.errors import UsageError


def test_arrows_of_chosen_ranks_are_counted_and_reports_have_none(ddprof, sample, tmp_path: Path, saved: Path) -> None:
    for ranks, has_arrows in (("0-3", True), ("0", False)):
        code, _, err = ddprof("export", sample("slow_gpu"), "--ranks", ranks, "-o", str(tmp_path / "x.json.gz"))
        document = json.loads(gzip.decompress((tmp_path / "x.json.gz").read_bytes()))
        arrows = sum(event["ph"] == "s" for event in document["traceEvents"])
        assert code == 0 and f" and {arrows} waits to " in err and (arrows > 0) is has_arrows
    code, _, err = ddprof("export", str(saved), "-o", str(tmp_path / "x.json"))
    assert (code, len(err.splitlines())) == (4, 1) and str(saved) in err and "holds no events" in err
    assert ddprof("export", str(saved), "--to", "csv", "-o", str(tmp_path / "tables"))[0] == 0


@pytest.mark.parametrize("ranks", ["²", "0-²", "x", "0,,1", "", "1-", "-1"])  # "²".isdigit(), and int() refuses it
def test_ranks_are_a_list_of_numbers_and_ranges(ranks: str) -> None:
    assert parse_ranks("0,3-5") == {0, 3, 4, 5}
    with pytest.raises(UsageError, match="want a list like"):
        parse_ranks(ranks)


def test_the_kernel_table_is_exported_and_sums_to_the_ledger(ddprof, sample, tmp_path: Path) -> None:
    busy = ("compute", "comm_wait", "comm_transfer", "pipeline_bubble", "memcpy")
    for extra in ((), ("--redact",)):
        out = tmp_path / f"tables{len(extra)}"
        assert ddprof("export", sample("slow_gpu"), "--to", "csv", "-o", str(out), *extra)[0] == 0
        kernels = list(csv.DictReader((out / "kernels.csv").open(encoding="utf-8")))
        causes = list(csv.DictReader((out / "rank_causes.csv").open(encoding="utf-8")))
        for rank in {row["rank"] for row in causes}:
            found = sum(float(row["busy_us"]) for row in kernels if row["rank"] == rank)
            booked = sum(float(row["mean_us"]) for row in causes if row["rank"] == rank and row["cause"] in busy)
            assert abs(found - booked) < 1e-3 * booked
        assert "## kernels" in (out / "columns.md").read_text(encoding="utf-8")


def test_many_slices_are_in_perfettos_format(ddprof, sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert ddprof("export", sample("slow_gpu"))[0] == 0
    monkeypatch.setattr("ddprof.cli.export.MOST_AS_TEXT", 10)
    assert ddprof("export", sample("slow_gpu"))[0] == 0
    assert ddprof("export", sample("slow_gpu"), "-o", "own.json")[0] == 0  # the name decides
    written = {file.name: file for file in tmp_path.iterdir()}
    assert sorted(written) == ["ddprof-trace.json.gz", "ddprof-trace.pftrace.gz", "own.json"]
    assert gzip.decompress(written["ddprof-trace.pftrace.gz"].read_bytes())[:1] == b"\n"  # the first packet
    assert written["own.json"].read_text().startswith("{")
