"""tune.json: what is written is read, with and without an answer; what is damaged is one line."""

from pathlib import Path

import pytest
from fake_runs import Job, candidate, journal

from ddprof.errors import NoUsableInput
from ddprof.slices.tuning.result import result
from ddprof.slices.tuning.search import search
from ddprof.trials.document import FILE, read_document, read_state, write_document


def test_an_answer_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = journal(tmp_path, Job({"num_workers=4": 0.5}))
    assert read_document(tmp_path).result is None
    answer = result(made, search(made, [candidate("num_workers", 4)]))
    write_document(made.state, tmp_path, answer)
    assert read_document(tmp_path).result == answer  # who resumes needs none
    assert read_document(tmp_path).trials == read_state(tmp_path).trials == made.state.trials
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "ddprof.tune/1"}', "[" * 9_000])
def test_what_is_damaged_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(NoUsableInput, match="damaged"):
        read_document(tmp_path)


def test_another_schema_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoUsableInput, match="No such file"):
        read_document(tmp_path)
    journal(tmp_path, Job())
    (tmp_path / FILE).write_text((tmp_path / FILE).read_text().replace("ddprof.tune/1", "ddprof.tune/9"))
    with pytest.raises(NoUsableInput, match=r"wanted 'ddprof\.tune/1'"):
        read_document(tmp_path)
