"""Megatron's training log, as its timers print it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddprof.errors import NoUsableInput
from ddprof.readers import discover

LOG = """using world size: 8, data-parallel size: 8
(min, max) time across ranks (ms):
    model-and-optimizer-setup ......................: (1345.37, 1359.59)
    train/valid/test-data-iterators-setup ..........: (3078.04, 3884.57)
training ...
 [2025-11-13 16:26:40] iteration        1/     100 | consumed_samples: 64 | elapsed time per iteration (ms): 900.0
(min, max) time across ranks (ms):
    forward-backward ...............................: (700.00, 880.00)
    optimizer ......................................: (30.10, 31.00)
 [2025-11-13 16:26:41] iteration        2/     100 | consumed_samples: 128 | elapsed time per iteration (ms): 800.0
(min, max) time across ranks (ms):
    forward-backward ...............................: (600.00, 780.00)
    optimizer ......................................: (30.30, 31.20)
"""


def said(folder: Path, text: str) -> str:
    file = folder / "train.out"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NoUsableInput) as raised:
        discover([file])
    assert "a training log of Megatron" in str(raised.value) and "\n" not in str(raised.value)
    return str(raised.value)


def test_how_far_the_ranks_are_apart(tmp_path: Path) -> None:
    text = said(tmp_path, LOG)
    assert "2 iterations of 850 ms (median); forward-backward 650 ms to 830 ms; optimizer 30.2 ms to 31.1 ms" in text
    assert "setup" not in text and "name no rank" in text


def test_a_log_without_numbers(tmp_path: Path) -> None:
    text = said(tmp_path, "(min, max) time across ranks (ms):\n    optimizer ....: (x, y)\n    y ...: (1.1.1, 2)\n")
    assert "Shortest" not in text
