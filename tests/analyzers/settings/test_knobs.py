"""Settings as they are typed, and what each of them assumes."""

from ddprof.analyzers.settings.knobs import BY_KEY, KNOBS, Setting, parse_setting


def test_every_knob_says_what_it_assumes_and_may_name_ranks() -> None:
    assert len(BY_KEY) == len(KNOBS)
    assert all(knob.words and knob.assumption and knob.values for knob in KNOBS)
    assert parse_setting("compute=1.5@3,7") == Setting("compute", "1.5", (3, 7))
    assert parse_setting("autocast=bf16") == Setting("precision", "bf16")  # as `ddprof run --set` calls it
