"""Batches made in the loop of a CPU rank are told by what makes them, whatever the function is called."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpu_loop import cpu_loop, operators
from kineto_run import Script

from ddprof.analyzers.facts.model import RankFacts


def held_ms(facts: RankFacts) -> float:
    """Time in the loader, per step; no update comes before the first."""
    start, end = facts.spans_of("dataloader").bounds
    return float((end - start).sum()) / 1e6 / 3


def warps(script: Script) -> None:
    with script.frame("train.py(9): warp"):
        operators(script, "rand", "grid_sampler", "mul", dur_us=1_000.0)


def cuts_texts(script: Script) -> None:
    with script.frame("train.py(30): ids_of"):
        script.idle(5_000.0)
        operators(script, "lift_fresh")


def sends_then_draws(script: Script) -> None:
    with script.frame("train.py(50): put"):
        script.idle(5_000.0)
    operators(script, "randn", dur_us=2_000.0)


def averages(script: Script) -> None:
    with script.frame("train.py(70): blend"):
        operators(script, "mul", "add", count=100)
    operators(script, "randn", dur_us=20.0)


def test_images_changed_before_the_forward_pass_are_data(tmp_path: Path) -> None:
    facts = cpu_loop(tmp_path, before=warps)
    assert held_ms(facts) == pytest.approx(3.0, abs=0.1)
    assert facts.strings[int(facts.spans_of("dataloader")["name"][0])] == "train.py:9 warp()"


def test_python_before_tensors_of_values_made_them(tmp_path: Path) -> None:
    assert held_ms(cpu_loop(tmp_path, before=cuts_texts)) == pytest.approx(5.0, abs=0.1)


def test_python_before_random_numbers_is_something_else(tmp_path: Path) -> None:
    assert held_ms(cpu_loop(tmp_path, before=sends_then_draws)) == pytest.approx(2.0, abs=0.1)


def test_a_moving_average_beside_them_is_no_data(tmp_path: Path) -> None:
    assert held_ms(cpu_loop(tmp_path, before=averages)) == 0.0


def test_the_same_operators_after_the_backward_pass_make_no_batch(tmp_path: Path) -> None:
    assert held_ms(cpu_loop(tmp_path, after=warps)) == 0.0
