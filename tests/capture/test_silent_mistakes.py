"""Mistakes that raise no error and cost no time are remarked, with the line of the script, by the report of the run."""

import json
from pathlib import Path

import pytest
from runs import SCRIPTS, forked, good_run

from ddprof.analyzers.engine import analyze
from ddprof.report import phrases
from ddprof.report.gate import parse_gate
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import from_contract, to_contract
from ddprof.report.markdown import render_markdown
from ddprof.report.redaction.redact import redacted
from ddprof.report.text import render_text

pytestmark = pytest.mark.torch
SCRIPT = SCRIPTS / "silent_mistakes.py"


def test_each_is_told_with_its_line_on_every_screen(tmp_path: Path) -> None:
    (report,) = analyze([good_run(tmp_path, forked(SCRIPT.name), "--no-stacks").folder])
    found = {remark.id: remark for remark in report.training.remarks}
    marked = [text.rpartition("# ")[2] for text in SCRIPT.read_text().splitlines()]
    line = {words: f":{marked.index(words) + 1}" for words in ("wrapped", "made", "iterated")}
    places = dict.fromkeys(("training.buffers_differ", "training.replicas_differ"), line["wrapped"])
    places |= {"training.set_epoch": line["iterated"], "training.unused_parameters": line["made"]}
    places["training.batch_norm"] = ""
    assert set(found) == set(places)
    for name, place in places.items():
        assert place in found[name].evidence[-1].text, found[name]
    assert "head.weight" in found["training.replicas_differ"].evidence[0].text
    assert "left_over.weight, left_over.bias" in found["training.unused_parameters"].summary
    assert (report.training.samples_per_rank, report.training.samples_per_step) == (4, 8)
    # They are no findings, but the worst one is told first, and gates count them.
    assert not any(finding.id.startswith("training.") for finding in report.findings)
    document = json.loads(json.dumps(to_contract(report)))
    assert {remark.id for remark in found.values() if remark.severity == "critical"} == {"training.replicas_differ"}
    first = document["verdict"]["check_first"]
    assert first.startswith("Check the result first: ") and "(training.replicas_differ); and 2 more" in first
    gated = [violation.key for violation in parse_gate("critical")(report)]
    assert gated[0] == "training.replicas_differ" and from_contract(document).training == report.training
    for screen in (render_text(report), render_markdown(report), render_summary(report)):
        words = screen.replace("\\", "")  # Markdown escapes
        assert all(name.split(".")[1] in words for name in places)
        assert 0 <= words.find("Check the result first: ") < words.find(phrases.bound_word(report))
    hidden = render_text(redacted(report, b"key"))
    assert "left_over" not in hidden and SCRIPT.name not in hidden and "training.set_epoch" in hidden
