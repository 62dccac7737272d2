"""Sources are grouped by the run they belong to, and the last window of a process is taken."""

import os
from pathlib import Path

import pytest
from reading import file_names, our_run, rank_file, ranks_of, read_all

from ddprof.errors import UsageError
from ddprof.readers import discover
from ddprof.readers.admission.runs import labels


def test_unrelated_folders_are_separate_runs_and_hosts_are_one(tmp_path: Path) -> None:
    rank_file(tmp_path / "first" / "rank0.json", 0)
    rank_file(tmp_path / "second" / "node0" / "rank0.json", 0)
    rank_file(tmp_path / "second" / "node1" / "rank1.json", 1)
    assert ranks_of(discover([tmp_path])) == [("first", 1), ("second", 2)]


def test_a_run_folder_gives_the_last_window_with_its_companions(tmp_path: Path) -> None:
    our_run(tmp_path / "run", windows=2, restarts=2)
    inventory = discover([tmp_path / "run"])
    stems = ("rank0.host.110.1", "rank1.host.111.1")
    assert file_names(inventory) == [f"{stem}.1.pt.trace.json" for stem in stems]
    assert [Path(s.sidecar_path or "").name for s in inventory.sources] == [f"{stem}.sidecar.json" for stem in stems]
    traces = read_all(inventory)
    assert [[e.collective_seq_id for e in t.flight_recorder] for t in traces] == [[1], [1]]
    assert [(t.identity.rank, t.identity.source) for t in traces] == [(0, "sidecar"), (1, "sidecar")]
    assert any("4 trace windows" in h.issue for h in inventory.health)
    first = discover([tmp_path / "run"], window=1)
    assert file_names(first) == [f"rank{r}.host.10{r}.0.0.pt.trace.json" for r in (0, 1)]
    with pytest.raises(UsageError, match="--window 5: this run has 4 windows"):
        discover([tmp_path / "run"], window=5)


def test_the_last_attempt_in_a_folder_that_is_used_again_is_taken_whatever_its_windows(tmp_path: Path) -> None:
    for written_s, (pid, windows) in enumerate([(9, 5), (8, 2)]):
        for window in range(windows):
            path = rank_file(tmp_path / f"rank0.host.{pid}.0.{window}.pt.trace.json", 0)
            os.utime(path, (written_s, 100 * written_s + 100 - window))  # within a process, the windows' numbers count
    assert file_names(discover([tmp_path])) == ["rank0.host.8.0.1.pt.trace.json"]
    assert file_names(discover([tmp_path], window=5)) == ["rank0.host.9.0.4.pt.trace.json"]


def test_the_latest_link_is_one_run(tmp_path: Path) -> None:
    our_run(tmp_path / "20261121-a", windows=1)
    our_run(tmp_path / "20261121-b", windows=1)
    os.symlink("20261121-b", tmp_path / "latest")
    assert [size for _, size in ranks_of(discover([tmp_path / "latest"]))] == [2]
    assert ranks_of(discover([tmp_path])) == [("20261121-a", 2), ("20261121-b", 2)]


def test_tensorboard_windows_of_one_process(tmp_path: Path) -> None:
    for rank, pid in ((0, 77), (1, 78)):
        for stamp in (1623143089861, 1623143099861):
            rank_file(tmp_path / f"host_{pid}.{stamp}.pt.trace.json", rank)
    assert file_names(discover([tmp_path])) == [f"host_{pid}.1623143099861.pt.trace.json" for pid in (77, 78)]


def _named(*paths: Path) -> list[str]:
    return [label for label, _ in discover(paths).runs]


def _recorded(folder: Path) -> Path:
    for rank in range(2):
        rank_file(folder / f"rank{rank}.json", rank)
    return folder


def test_a_folder_of_traces_is_called_by_its_job(tmp_path: Path) -> None:
    mnist, gpt = _recorded(tmp_path / "mnist" / "traces"), _recorded(tmp_path / "gpt" / "profiler_logs")
    assert _named(mnist) == ["mnist"] and _named(mnist.parent) == ["mnist"]
    assert _named(mnist, gpt) == ["mnist", "gpt"] and sorted(_named(tmp_path)) == ["gpt", "mnist"]


def test_runs_that_would_be_called_alike_keep_their_folders(tmp_path: Path) -> None:
    assert labels(["", "logs"], ["/traces", "/logs"]) == ["traces", "logs"]  # no part tells: the last is the name
    _recorded(tmp_path / "mnist" / "traces"), _recorded(tmp_path / "mnist" / "profile")
    assert sorted(_named(tmp_path)) == ["mnist/profile", "mnist/traces"]
    assert sorted(_named(tmp_path / "mnist")) == ["profile", "traces"]


def test_any_other_word_tells_a_run_and_the_name_of_a_file_where_there_is_one(tmp_path: Path) -> None:
    for name in ("trace_2", "traces_amp", "tracer-bullet"):
        assert _named(_recorded(tmp_path / name)) == [name]
    rank_file(tmp_path / "mnist" / "trace.json", 0)
    assert _named(tmp_path / "mnist") == _named(tmp_path / "mnist" / "trace.json") == ["mnist"]
    rank_file(tmp_path / "logs" / "amp.json", 0)
    assert _named(tmp_path / "logs") == ["amp"]


def test_a_folder_that_capture_wrote_names_its_run_however_many_ranks_it_holds(tmp_path: Path) -> None:
    our_run(tmp_path / "alone", windows=1, ranks=1)
    our_run(tmp_path / "pair", windows=1)
    assert _named(tmp_path / "alone") == ["alone"] and _named(tmp_path / "pair") == ["pair"]
    rank_file(tmp_path / "logs" / "rank0.host.100.0.0.pt.trace.json", 0)
    assert _named(tmp_path / "logs") == ["rank0.host.100.0.0"]  # copied from such a folder, alone
