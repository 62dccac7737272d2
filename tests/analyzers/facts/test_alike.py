"""What ranks state alike is held once, and nothing of it changes."""

from dataclasses import replace
from pathlib import Path

from kineto_run import Script

from ddprof.analyzers.facts.alike import Alike
from ddprof.model import ProcessGroup


def test_equal_names_and_groups_are_one_object_and_others_stay_apart(tmp_path: Path) -> None:
    script = Script()
    script.launch()
    first = replace(script.facts(tmp_path), strings=("a", "b"), process_groups=(ProcessGroup("0", ranks=(0, 1)),))
    equal = replace(first, strings=tuple("ab"), process_groups=(ProcessGroup("0", ranks=(0, 1)),))
    other = replace(first, strings=("a", "c"))
    alike = Alike()
    held = [alike.shared(facts) for facts in (first, equal, other)]
    assert held[0].strings is held[1].strings
    assert held[0].process_groups is held[1].process_groups
    assert [facts.strings for facts in held] == [("a", "b"), ("a", "b"), ("a", "c")]
