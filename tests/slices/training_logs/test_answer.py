"""`ddprof analyze` of a training log alone, beside traces, and where it is asked for what a log does not hold."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ddprof.cli.main import cli
from ddprof.errors import NoUsableInput, UsageError
from ddprof.readers import discover
from ddprof.slices.training_logs.reading import lines

SAMPLES = Path(__file__).parent / "samples"
LOG = SAMPLES / "megatron_mixtral.log"


def analyze(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["analyze", *arguments])


def test_text_json_markdown_a_folder_of_logs_and_redaction(tmp_path: Path) -> None:
    assert "An iteration takes 5.65 s" in analyze(str(LOG)).stdout
    document = json.loads(analyze(str(LOG), "--format", "json").stdout)
    assert document["schema"] == "ddprof.training_log/1" and document["logs"][0]["iteration"]["median_us"] == 5_650_300
    for name in ("megatron_mixtral.log", "deepspeed_summary_2025.log"):
        shutil.copy(SAMPLES / name, (tmp_path / name).with_suffix(".out"))
    assert len(json.loads(analyze(str(tmp_path), "--format", "json").stdout)["logs"]) == 2
    out = tmp_path / "log.md"
    assert "wrote" in analyze(str(LOG), "-o", str(out)).stderr
    assert out.read_text(encoding="utf-8").startswith("```text\n")
    secret = tmp_path / "secret-customer.log"
    shutil.copy(LOG, secret)
    shown = analyze(str(secret), str(LOG), "--redact").stdout
    assert "secret-customer" not in shown and "An iteration takes" in shown and "1 more log of which the same" in shown


def test_what_is_not_read_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["--format", "html"], ["--fail-on", "warning"], ["--fixes", str(tmp_path / "fixes.toml")]):
        assert isinstance(analyze(str(LOG), *arguments).exception, UsageError)
    empty = tmp_path / "train.log"
    empty.write_text("(min, max) time across ranks (ms):\n   optimizer ...: (", encoding="utf-8")
    asked = ([str(empty)], [str(empty), str(LOG)], [str(empty), str(LOG), "--strict"])
    assert [type(analyze(*words).exception) for words in asked] == [NoUsableInput, type(None), NoUsableInput]
    more = tmp_path / "rank1.log.gz"
    more.write_bytes(gzip.compress(LOG.read_bytes() * 2)[:-9])
    assert "Not judged. The rest of the log: the compressed data ends early" in analyze(str(more)).stdout
    monkeypatch.setattr(lines, "LOGS_BYTES", 1000)
    assert "The rest of the log" not in analyze(str(LOG)).stdout  # stored as it is, it is read to its end
    shutil.copy(LOG, tmp_path / "rank0.log")
    more.write_bytes(gzip.compress(LOG.read_bytes() * 99))
    last = shutil.copy(more, tmp_path / "rank2.log.gz")
    assert f"2 more logs, {last} first: left out" in analyze(str(tmp_path)).stderr
    with pytest.raises(NoUsableInput, match="holds no events: `ddprof analyze` alone reads it"):
        discover([LOG])


def test_beside_traces_it_is_left_out_with_a_note(tmp_path: Path) -> None:
    shutil.copy(LOG, tmp_path / "train.out")
    event = {"ph": "X", "name": "work", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    (tmp_path / "trace.json").write_text(json.dumps([event]), encoding="utf-8")
    inventory = discover([tmp_path])
    assert len(inventory.sources) == 1
    (note,) = inventory.health
    assert "An iteration takes 5.65 s" in note.issue and note.severity == "info"
    for rank in range(13):
        shutil.copy(LOG, tmp_path / f"train{rank}.out")
    more, *read = discover([tmp_path]).health
    assert more.issue == "10 more files without events beside the traces" and more.effect.startswith("not read")
    assert len(read) == 4 and all("An iteration takes" in note.issue for note in read)


def test_numbers_that_begin_late(tmp_path: Path) -> None:
    """With NCCL_DEBUG=INFO every rank writes thousands of lines before the first iteration."""
    late = tmp_path / "late.log"
    head = "using world size: 8, data-parallel size: 8, context-parallel size: 1\n"
    late.write_text(head + "node0:1:1 [0] NCCL INFO Channel 00/32\n" * 20_000 + LOG.read_text(encoding="utf-8"))
    assert "An iteration takes 5.65 s" in analyze(str(late)).stdout
    for timeless in (head, "{'loss': 0.7, 'learning_rate': 1e-05, 'epoch': 0.5}\n"):
        late.write_text(timeless)
        assert "a training log without a complete iteration, timer or call" in str(analyze(str(late)).exception)
    settings = "[rank0]: optimizer ................. adam\n" * 20_000  # in a folder, below settings without any mark
    late.write_text(settings + LOG.read_text(encoding="utf-8"))
    (tmp_path / "notes.txt").write_text("[rank0]: nothing\n")
    result = analyze(str(tmp_path))
    assert "An iteration takes 5.65 s" in result.stdout and result.stderr == ""
