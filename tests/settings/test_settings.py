"""Valid fixes, places and combinations; their page and variables; FIXES.toml, of which what is written is read back."""

from pathlib import Path

import pytest

from ddprof.errors import UsageError
from ddprof.settings.catalogue import CATALOGUE, Effect, Value
from ddprof.settings.fixes_file import parse_fixes, read_fixes, write_fixes
from ddprof.settings.wanted import (
    WantedFix,
    changes_numbers,
    checked_together,
    differs,
    packed,
    parse_set,
    unpacked,
    variables,
)

TYPED = [
    *(("num_workers=4", "num_workers", 4, ""), ("pin_memory=True", "pin_memory", True, "")),
    ("bucket_cap_mb=12.5", "bucket_cap_mb", 12.5, ""),
    ("multiprocessing_context=spawn@src/train.py:57", "multiprocessing_context", "spawn", "src/train.py:57"),
    ("NCCL_MAX_NCHANNELS=8", "NCCL_MAX_NCHANNELS", "8", ""),
    ("precision=bf16", "autocast", "bf16", ""),  # as a what-if calls it
    ("optimizer=fused@train.py:9", "fused", True, "train.py:9"),
]
REFUSED = {
    **{"num_workers": "NAME=VALUE", "num_workers=many": "whole number from 0 to 1024"},
    **{"num_workers=true": "whole number", "num_workers=-1": "whole number", "fused=1": "true or false"},
    **{"bucket_cap_mb=nan": "a number from 1", "multiprocessing_context=thread": "fork or spawn or forkserver"},
    "bucket_cap_mb=0.5": "a number from 1",  # DDPOptimizer of torch.compile asserts 1 MB
    **{"LD_PRELOAD=x.so": "no setting", "NCCL_NET_PLUGIN=evil": "no setting"},
    **{"NCCL_PROTO=/tmp/x": "letters, digits", "num_workers=4@train.py": "FILE:LINE"},
    **{
        "gc_interval=5@train.py:3": "of the whole process",
        "compile=false": "wants true",
        "autocast=fp16": "wants bf16",
    },
}
PLACES = [
    *(("", "train.py", 3, True), ("train.py:3", "train.py", 3, True), ("./train.py:3", "train.py", 3, True)),
    *(("train.py:3", "/job/src/train.py", 3, True), ("/job/src/train.py:3", "src/train.py", 3, True)),
    *(("train.py:3", "train.py", 4, False), ("train.py:3", "pretrain.py", 3, False)),
    ("src/train.py:3", "other/train.py", 3, False),
]
CONTRADICTIONS = [
    (["num_workers=2", "num_workers=4"], "to 2 and to 4"),
    (["num_workers=0", "persistent_workers=true"], "exclude each other"),
    (["num_workers=0@a.py:1", "prefetch_factor=2"], "exclude each other"),
    (["fused=true", "foreach=true"], "exclude each other"),
    *((["first_bucket_mb=1", "bucket_cap_mb=50"], "exclude each other"), (["gc_interval=5"] * 65, "at most 64")),
]
# The environment's variable for the allocator -> what it becomes.
ALLOCATOR = [
    ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:False"},
     {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"}),
    ({"PYTORCH_ALLOC_CONF": "a:1"}, {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "name", "value", "at"), TYPED)
def test_a_setting_as_it_is_typed(text: str, name: str, value: Value, at: str) -> None:
    fix = parse_set(text)
    assert (dict(fix.values), fix.at) == ({name: value}, at)


@pytest.mark.parametrize("text", REFUSED)
def test_what_no_run_could_apply_is_refused_with_what_is_wanted(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]):
        parse_set(text)


def test_a_fix_is_of_one_kind_of_object_and_of_one_effect() -> None:
    compiled = [{name: "bf16", "compile": True} for name in ("gradient_compression", "autocast")]
    for values in ({"num_workers": 4, "fused": True}, *compiled):  # known at other moments: no fix is half of both
        with pytest.raises(ValueError, match="one fix each"):
            WantedFix(values)
    assert WantedFix({"reshard_after_forward": False}).targets == ("FullyShardedDataParallel", "fully_shard")
    both = WantedFix({"reshard_after_forward": False, "forward_prefetch": True})
    assert both.targets == ("FullyShardedDataParallel",)
    assert changes_numbers(parse_set("tf32=true")) and not changes_numbers(parse_set("num_workers=4"))
    assert [name for name, setting in CATALOGUE.items() if setting.effect is Effect.NUMBERS] == [
        *("tf32", "gradient_compression", "autocast", "compile")
    ]


@pytest.mark.parametrize(("at", "file", "line", "meant"), PLACES)
def test_a_place_is_meant_by_its_line_and_the_stated_path(at: str, file: str, line: int, meant: bool) -> None:
    assert WantedFix({"fused": True}, at).is_made_at(file, line) is meant


@pytest.mark.parametrize(("stated", "words"), CONTRADICTIONS)
def test_contradictions_are_refused_before_the_job_starts(stated: list[str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        checked_together([parse_set(text) for text in stated])


def test_the_way_to_the_ranks_loses_nothing_and_two_places_may_have_two_values() -> None:
    fixes = (WantedFix({"num_workers": 4, "pin_memory": True}, "train.py:57", "input.starved"), parse_set("tf32=true"))
    assert unpacked(packed(fixes)) == fixes and packed([]) == ""
    with pytest.raises(ValueError):
        unpacked('[["x"]]')
    fixes = [parse_set(text) for text in ("num_workers=2@a.py:1", "num_workers=4@a.py:9", "num_workers=1")]
    assert checked_together(fixes) == tuple(fixes)


def test_what_becomes_a_variable_beside_the_allocators_other_options_and_whether_it_reached_a_rank() -> None:
    for base, expected in ALLOCATOR:
        assert variables([parse_set("expandable_segments=true")], base) == expected
    fixes = [parse_set(text) for text in ("omp_num_threads=3", "NCCL_PROTO=LL", "num_workers=2")]
    assert variables(fixes, {}) == {"OMP_NUM_THREADS": "3", "NCCL_PROTO": "LL"}
    assert differs("NCCL_PROTO", "LL", {"NCCL_PROTO": "LL"}) == ""
    assert "is Simple in this process" in (differs("NCCL_PROTO", "LL", {"NCCL_PROTO": "Simple"}) or "")
    assert "is not set" in (differs("omp_num_threads", 2, {}) or "")
    assert differs("expandable_segments", True, {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}) == ""
    assert differs("gc_interval", 5, {}) is None


def test_the_table_of_the_page_is_the_catalogue(repo_root: Path) -> None:
    rows = [f"| `{s.name}` | {', '.join(s.targets)} | {s.effect.value} " for s in CATALOGUE.values()]
    page = (repo_root / "docs" / "tuning-reference.md").read_text(encoding="utf-8")
    table = page.split("<!-- settings -->")[1].split("<!-- /settings -->")[0].strip().splitlines()
    assert [row.rpartition(" |")[0].rpartition("| ")[0] for row in table[2:]] == rows  # without their remarks


HEAD = 'schema = "ddprof.fixes/1"\n'


def test_what_is_written_is_read_back() -> None:
    fixes = (
        WantedFix({"num_workers": 4, "persistent_workers": True}, 'a "b"/tr\\ain.py:57', "input.starved"),
        WantedFix({"bucket_cap_mb": 12.5}),
        WantedFix({"multiprocessing_context": "spawn"}),
    )
    text = write_fixes([(fix, "why\nnot") for fix in fixes], ["from a\nrun"])
    assert parse_fixes(text) == fixes and text.startswith("# from a?run\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        *(("", "schema"), ("schema = 1", "schema"), (HEAD + "[fix]\nset = {}", "schema and")),
        *((HEAD + "[[fix]]\nat = 'a.py:1'", "needs set"), (HEAD + "[[fix]]\nset = {}", "sets nothing")),
        (HEAD + "[[fix]]\nset = { num_workers = 2 }\nwho = 1", "has who"),
        (HEAD + "[[fix]]\nset = { num_workers = 2 }\nat = 1", "are text"),
        (HEAD + "[[fix]]\nset = { num_workers = 1979-05-27 }", "whole number"),
        (HEAD + "[[fix]]\nset = { num_workers = [2] }", "whole number"),
        *((HEAD + "[[fix]]\nset = { NCCL_PROTO = { a = 1 } }", "a number or a word"), (HEAD + "[[fix]", "")),
    ],
)
def test_another_file_or_none_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_fixes(tmp_path / "FIXES.toml")
    (tmp_path / "FIXES.toml").write_text(text)
    with pytest.raises(UsageError, match=words):
        read_fixes(tmp_path / "FIXES.toml")
