"""Settings that travel as variables of the environment."""

import pytest

from ddprof.settings.environment import differs, variables
from ddprof.settings.wanted import parse_set


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ({}, {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:False"},
            {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64,expandable_segments:True"},
        ),
        ({"PYTORCH_ALLOC_CONF": "a:1"}, {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}),
    ],
)
def test_the_allocators_other_options_stay(base: dict[str, str], expected: dict[str, str]) -> None:
    assert variables([parse_set("expandable_segments=true")], base) == expected


def test_what_becomes_a_variable_and_whether_it_reached_a_rank() -> None:
    fixes = [parse_set(text) for text in ("omp_num_threads=3", "NCCL_PROTO=LL", "num_workers=2")]
    assert variables(fixes, {}) == {"OMP_NUM_THREADS": "3", "NCCL_PROTO": "LL"}
    assert differs("NCCL_PROTO", "LL", {"NCCL_PROTO": "LL"}) == ""
    assert "is Simple in this process" in (differs("NCCL_PROTO", "LL", {"NCCL_PROTO": "Simple"}) or "")
    assert "is not set" in (differs("omp_num_threads", 2, {}) or "")
    assert differs("expandable_segments", True, {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}) == ""
    assert differs("gc_interval", 5, {}) is None
