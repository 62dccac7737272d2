"""Advice that the recording contradicts is not given."""

from dataclasses import replace
from pathlib import Path

import pytest
from kineto_run import Script
from labelled_runs import candidate, run_of

from ddprof.analyzers.facts.model import RankFacts
from ddprof.analyzers.job.assemble import job_facts
from ddprof.analyzers.rules.evidence.present import is_new, present_in
from ddprof.findings import Fix


def facts(folder: Path, *names: str) -> RankFacts:
    """A launch-bound rank with host ranges of these names."""
    script = Script()
    for _ in script.steps(3):
        script.launch(times=40)
        for name in names:
            script.host(name, 3.0)
    return script.facts(folder)


def advice(given: RankFacts) -> list[Fix]:
    return list(candidate("host.launch_bound", run_of([given]).measures).fixes)


def text(fixes: list[Fix]) -> str:
    return " ".join(f"{fix.setting} {fix.current} {fix.suggested} {fix.patch} {fix.why}" for fix in fixes)


def test_only_what_a_program_does_not_do_yet_is_advised_to_it(tmp_path: Path) -> None:
    given = facts(tmp_path)
    assert "eager" in text(advice(given))
    assert "reduce-overhead" not in text(advice(facts(tmp_path, "cudaGraphLaunch")))
    words = text(advice(replace(given, device=replace(given.device, kind="rocm"))))
    assert "torch.compile" in words and "CUDA" not in words and "reduce-overhead" not in words
    assert "torch.compile" not in text(advice(replace(given, device=replace(given.device, kind="mtia"))))
    foreign = tuple(s.replace("aten::", "my_").replace("Prof", "") for s in given.strings)
    assert "torch" not in text(advice(replace(given, strings=foreign)))


@pytest.mark.parametrize("name", ["Torch-Compiled Region: 0/1", "## Call CompiledFxGraph fud ##", "triton_poi_fused_0"])
def test_a_compiled_one_is_not_called_eager(tmp_path: Path, name: str) -> None:
    given = facts(tmp_path, name)
    assert present_in(job_facts([given])).is_compiled and "eager" not in text(advice(given))


@pytest.mark.parametrize("current,suggested,expected", [("25", "25.0", False), ("2", "4", True), (None, "4", True)])
def test_a_fix_suggests_another_value(current: str | None, suggested: str, expected: bool) -> None:
    assert is_new(Fix("bucket_cap_mb", suggested, "", "", current)) is expected
