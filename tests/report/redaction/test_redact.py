"""A redacted report holds no name of the site, and says the same."""

import dataclasses
import json

import pytest

from ddprof.findings import Evidence
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import to_contract
from ddprof.report.model import ClockInfo, HealthItem, HostClockInfo, Report
from ddprof.report.redaction.redact import Redaction, redacted, redaction_key

KEY = b"a key of the tests"
SECRETS = ("node-a", "node-b", "mnist", "rank0.json", "secret_kernel", "/home/alice", "train_gpt9", "10.1.2.3")


@pytest.fixture
def private_report(straggler_report: Report) -> Report:
    summary = "node-b reads /home/alice/project/train_gpt9.py slowly: 3/4 steps, 12 GB/s"
    evidence = (Evidence("secret_kernel(float*) ran on node-b", 2, 0.0, 1.0, "secret_kernel(float*)"),)
    finding = dataclasses.replace(straggler_report.findings[1], summary=summary, evidence=evidence)
    note = HealthItem("runs/mnist/rank0.json.gz is cut off (host 10.1.2.3)", "ask alice@corp.com about shard/zeta.bin")
    verdict = dataclasses.replace(straggler_report.verdict, headline="node-b is late (train_gpt9.py)")
    return dataclasses.replace(straggler_report, findings=(finding,), health=(note,), verdict=verdict)


def test_no_secret_is_left_numbers_stay_and_a_name_has_one_hash_everywhere(private_report: Report) -> None:
    hidden = redacted(private_report, b"key")
    for text in (json.dumps(to_contract(hidden)), render_summary(hidden)):
        assert [secret for secret in (*SECRETS, "alice@corp.com", "shard/zeta") if secret in text] == []
    before, after = to_contract(private_report), to_contract(hidden)
    for section in ("steps", "ledger", "efficiency", "replay"):
        assert after[section] == before[section]
    assert after["verdict"]["bound"] == before["verdict"]["bound"]
    for old, new in zip(before["findings"], after["findings"], strict=True):
        for key in ("id", "severity", "ranks", "lost_us", "recoverable_us", "predicted_step_us", "confidence"):
            assert new[key] == old[key]
    assert "3/4 steps, 12 GB/s" in after["findings"][0]["summary"]
    assert hidden.run.hosts[0] == hidden.run.hosts[1] != hidden.run.hosts[2]
    assert hidden.run.hosts[2] in hidden.findings[0].summary and hidden.run.hosts[2] in hidden.clock.hosts
    redaction = Redaction(private_report, b"key")
    assert redaction.text(redaction.report().run.hosts[2]) == hidden.run.hosts[2]  # what is hidden stays as it is
    assert redacted(private_report, b"key") == hidden
    assert redacted(private_report, b"other").run.hosts != hidden.run.hosts


def test_the_key_is_random_and_settings_are_hashed(monkeypatch: pytest.MonkeyPatch, straggler_report: Report) -> None:
    monkeypatch.delenv("DDPROF_REDACT_KEY", raising=False)
    assert redaction_key() != redaction_key()
    monkeypatch.setenv("DDPROF_REDACT_KEY", "k")
    assert redaction_key() == b"k"
    setting, plain = (
        Redaction(straggler_report, KEY).setting,
        ["True", "None", "4", "0.5", "torch.utils.data.DataLoader"],
    )
    assert [*map(setting, plain)] == plain
    assert setting("AcmeClickLogs").startswith("setting-") and setting("AcmeClickLogs") == setting("AcmeClickLogs")


def test_public_names_and_ranks_stay_and_a_short_host_is_hashed_too(straggler_report: Report) -> None:
    evidence = (Evidence("aten::mm", 0, 0.0, 1.0, "aten::mm"),)
    finding = dataclasses.replace(straggler_report.findings[1], evidence=evidence)
    hidden = redacted(dataclasses.replace(straggler_report, findings=(finding,)), b"key")
    assert hidden.findings[0].evidence == finding.evidence
    run = dataclasses.replace(straggler_report.run, hosts=dict.fromkeys(straggler_report.run.ranks, "vm"))
    redaction = Redaction(dataclasses.replace(straggler_report, run=run), KEY)
    assert redaction.text("vm").startswith("host-")
    assert redaction.text("a vm is a host") == "a name-" + redaction.text("a vm is a host")[7:15] + " is a host"
    clock = ClockInfo({"rank 2": HostClockInfo(0.0, 0.0, 1.0)}, "collective ends")
    redaction = Redaction(dataclasses.replace(straggler_report, clock=clock), KEY)
    assert redaction.text("the loader of rank 2 is late") == "the loader of rank 2 is late"
    assert redaction.report().clock.hosts.keys() == {"rank 2"}


def test_lines_of_the_script_are_hidden_even_where_their_words_are_public(private_report: Report) -> None:
    line = "train.py:88 evaluate()"
    summary = f"rank 0 alone runs {line}, in jobs/secret/loop.py:7 <module>, at a ratio of 3:4"
    evidence = (Evidence(f"longest: {line} took 3 ms", 0, 0.0, 1.0, line),)
    finding = dataclasses.replace(private_report.findings[0], summary=summary, evidence=evidence)
    hidden = redacted(dataclasses.replace(private_report, findings=(finding,)), KEY)
    text, (told,) = json.dumps(to_contract(hidden)["findings"]), hidden.findings
    assert [word for word in ("train.py", "evaluate", "secret", "loop") if word in text] == []
    assert ":88 function-" in told.summary and ":7 <module>, at a ratio of 3:4" in told.summary
    assert told.evidence[0].event in told.evidence[0].text
