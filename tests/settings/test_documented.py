"""docs/tuning.md lists the settings that there are."""

from pathlib import Path

from ddprof.settings.catalogue import CATALOGUE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tuning.md"


def test_the_table_of_the_page_is_the_catalogue() -> None:
    rows = [
        *("| setting | of | effect | remark |", "| --- | --- | --- | --- |"),
        *(f"| `{s.name}` | {', '.join(s.targets)} | {s.effect.value} | {s.caution} |" for s in CATALOGUE.values()),
    ]
    shown = PAGE.read_text(encoding="utf-8").split("<!-- settings -->")[1].split("<!-- /settings -->")[0]
    assert shown.strip().splitlines() == rows
