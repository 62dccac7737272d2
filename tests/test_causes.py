"""The tables of causes and of identifiers are the only ones: what screens, pages and rules say is theirs or checked."""

import re
from pathlib import Path

import pytest

from ddprof import finding_ids
from ddprof.analyzers.catalogue import titles
from ddprof.causes import CAUSE_CODE, CAUSE_IDS, CAUSES, HOST_OCCUPANTS, SPAN_CAUSES

ROOT = Path(__file__).resolve().parent.parent
MOST_SPELLED = 8  # causes in one file: rules and facts name the few that they are about


def test_rows_can_be_told_apart_by_place_letter_label_and_light() -> None:
    rows = CAUSES.values()
    for values in ([row.letter for row in rows], [row.label for row in rows], [row.light for row in rows]):
        assert len(set(values)) == len(CAUSES)
    assert {row.texture for row in rows} <= {"", "hatch", "dots", "lines", "cross"}
    assert all(CAUSE_IDS[CAUSE_CODE[cause]] == cause for cause in CAUSES)
    assert HOST_OCCUPANTS == ("gc", "allocator", "checkpoint", "dataloader")
    assert set(SPAN_CAUSES) == {*HOST_OCCUPANTS, "host_sync"}


def test_the_documents_list_every_cause() -> None:
    page = (ROOT / "docs" / "verdict.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (\S) \| .+ \| `(\w+)` \|$", page, re.MULTILINE)
    assert listed == [(row.letter, row.id) for row in CAUSES.values()]
    assert f"exactly one of {len(CAUSES)} causes" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", ["ddprof", "analyzers", "dashboard"])
def test_no_other_file_lists_the_causes(folder: str) -> None:
    names = {name for row in CAUSES.values() for name in (row.id, row.color_name)}
    spelled = re.compile(rf"[\"'.]({'|'.join(sorted(names))})\b")
    files = [path for kind in ("py", "js", "css") for path in (ROOT / folder).rglob(f"*.{kind}")]
    said = {path: {name.replace("-", "_") for name in spelled.findall(path.read_text("utf-8"))} for path in files}
    assert said and {path for path in said if len(said[path]) > MOST_SPELLED} <= {ROOT / "ddprof" / "causes.py"}


def test_every_constant_is_a_rule_or_check_and_every_rule_and_check_a_constant() -> None:
    constants = {name: value for name, value in vars(finding_ids).items() if name.isupper()}
    assert set(constants.values()) == set(titles())
    assert all(name == value.replace(".", "_").upper() for name, value in constants.items())
