"""Replays of the What-if page: no change gives the measured step, the culprit's cause pays, its command agrees."""

import json
import shlex
import shutil
from pathlib import Path
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from ddprof.analyzers.settings.knobs import Setting
from ddprof.cli.whatif import command as whatif
from ddprof.dashboard.exhibits.parts import try_it
from ddprof.dashboard.pages import what_if
from ddprof.dashboard.pages.cards import finding_card
from ddprof.dashboard.pages.what_if import wanted_settings
from ddprof.dashboard.runs.open_run import OpenRun, load
from ddprof.dashboard.runs.view import View
from tests.dashboard.made import SAMPLES, alone, generate, serialised, texts

REFUSED = [
    *(("device", "replaced", "which ranks"), ("device", "replaced@99", "no rank 99")),
    *(("device", "replaced@x", "ranks are written"), ("loader", "nonsense", "the only value is ready")),
    *(("bucket_cap_mb", "-3", "want a number"), ("gc", "off", "no garbage collection")),
]
STAGES = {"microbatches": "8", "interleave": "2", "stages": "balanced"}
COPIED = [
    ("straggler.compute", {"device": "replaced@{culprit}", "bandwidth": "2"}),
    ("comm.latency_bound", {"bucket_cap_mb": "25"}),
    ("bubble", STAGES),
    pytest.param("pipeline.bubble", STAGES, marks=pytest.mark.slow),  # 8 seconds of replays
]


def replayed(opened: OpenRun, **query: str) -> float:
    wanted = wanted_settings(opened, query)
    assert wanted.refused == ()
    return what_if.predict(opened, wanted.settings).after_us


def test_as_recorded_is_the_measured_step_and_removing_the_straggler_pays(straggler: OpenRun) -> None:
    nothing, before = what_if.predict(straggler, ()), straggler.report.steps.wall_us
    assert nothing.levels == () and nothing.after_us == pytest.approx(before)
    balanced = replayed(straggler, balance="on")
    assert balanced < before * 0.99 and replayed(straggler, balance="on", compute="2") < balanced


def test_every_control_can_be_replayed_alone(straggler: OpenRun) -> None:
    values = {"switch": "", "factor": "2", "number": "8", "choice": ""}
    for control in what_if.controls_of(alone(straggler)):
        value = control["suggested"] or values[control["kind"]] or control["on"]
        value = control["choices"][0] if control["choices"] else value
        value += "@0" if control["ranks"] == "needed" and "@" not in value else ""
        wanted = wanted_settings(straggler, {control["key"]: value})
        assert wanted.refused == () and len(wanted.settings) == 1, control["key"]
        replay = what_if.predict(straggler, wanted.settings)
        assert len(replay.levels) == 1 and replay.after_us > 0, control["key"]
        assert replay.low_us <= replay.after_us <= replay.high_us, control["key"]


@pytest.mark.parametrize("text", ["nan", "inf", "-5", "x", "1e9"])
def test_a_factor_from_the_address_stays_within_its_control(text: str, straggler: OpenRun) -> None:
    (setting,) = wanted_settings(straggler, {"bandwidth": text}).settings
    assert 1.0 <= float(setting.value) <= 8.0


@pytest.mark.parametrize(("key", "text", "why"), REFUSED)
def test_what_cannot_be_asked_is_refused_in_words(key: str, text: str, why: str, view: View) -> None:
    said = " ".join(texts(what_if.outcome(view, {key: text, "balance": "on"})))
    assert why in said and "less" in said  # the rest is replayed


def test_the_result_is_a_sentence_and_what_does_not_apply_is_hidden_and_says_why(view: View) -> None:
    sentence = what_if.outcome(view, {"balance": "on"})[0].children
    assert "→" in sentence and "less" in sentence
    keys = {control["key"] for control in what_if.controls_of(view)}
    assert not keys & {"gc", "stages", "microbatches", "reshard_after_forward"}
    said = " ".join(texts(what_if.content(view)))
    assert "no garbage collection in the recorded steps" in said and "no pipeline stages found in this run" in said


def test_controls_say_what_findings_suggest_and_those_lead_to_a_remedy_that_gains_so_much(straggler: OpenRun) -> None:
    view, finding = alone(straggler), straggler.report.ranked_findings()[0]
    assert [f for f in straggler.report.ranked_findings() if f.id == "straggler.compute"] == [finding]
    first, *others = what_if.controls_of(view)
    wanted = f"replaced@{','.join(map(str, finding.ranks))}"
    assert first["key"] == "device" and first["suggested"] == wanted and first["because"] == 1
    loader = next(control for control in others if control["key"] == "loader")
    assert loader["current"].endswith("in the loader per step")
    assert f"/what-if?{urlencode({'device': wanted})}" in serialised([finding_card(view, 0, finding, full=False)])
    gain = straggler.report.steps.wall_us - replayed(straggler, device=wanted)
    assert finding.recoverable_us.low <= gain <= finding.recoverable_us.high


@pytest.mark.parametrize(("kind", "query"), COPIED)
def test_the_copied_command_says_the_number_of_the_page(kind: str, query: dict[str, str], tmp_path: Path) -> None:
    quoted = tmp_path / "a run"  # the path wants quoting
    traces = shutil.copytree(SAMPLES / kind, quoted) if kind == "bubble" else generate(quoted, kind)
    opened = load([str(traces)], workers=1)[0]
    culprit = (opened.report.ranked_findings()[0].ranks or (0,))[0]
    query = {key: value.format(culprit=culprit) for key, value in query.items()}
    (command,) = [text for text in texts(what_if.outcome(alone(opened, **query), query)) if text.startswith("ddprof ")]
    name, subcommand, *words = shlex.split(command)
    assert (name, subcommand) == ("ddprof", "whatif")
    done = CliRunner().invoke(whatif, [*words, "--format", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    told = [json.loads(done.stdout)[key] for key in ("predicted_step_us", "low_us", "high_us")]
    replay = what_if.predict(opened, wanted_settings(opened, query).settings)
    assert replay.gain_us != 0 and told == pytest.approx([replay.after_us, replay.low_us, replay.high_us], abs=1e-3)


def test_a_run_that_no_path_names_has_no_command_several_their_folders(straggler_traces: Path, tmp_path: Path) -> None:
    opened = load([str(file) for file in sorted(straggler_traces.iterdir())], workers=1)[0]
    assert opened.argument == "" and try_it.of_settings(opened, [Setting("bandwidth", "2")]) == ()
    assert "No single path names this run" in " ".join(texts(what_if.outcome(alone(opened), {"bandwidth": "2"})))
    several = [shutil.copytree(SAMPLES / name / "traces", tmp_path / name) for name in ("gc", "slow_gpu")]
    assert sorted(run.argument for run in load([str(tmp_path)], workers=1)) == list(map(str, several))
