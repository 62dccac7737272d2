"""DeepSpeed's communication log: the lines of its documentation, and the table that its code prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddprof.errors import NoUsableInput
from ddprof.readers import discover

VERBOSE = """
[2022-06-26 01:39:55,722] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: reduce_scatter_base | time (ms): \
9.46 | msg size: 678.86 MB | algbw (Gbps): 1204.52  | busbw (Gbps): 1129.23
[2022-06-26 01:39:56,470] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: all_gather_base | time (ms): \
0.11 | msg size: 6.0 MB | algbw (Gbps): 954.41  | busbw (Gbps): 894.76
[2022-06-26 01:39:56,471] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: all_gather_base | time (ms): \
0.08 | msg size: 6.0 MB | algbw (Gbps): 1293.47  | busbw (Gbps): 1212.63
"""
HEAD = f"{'Comm. Op': <20}{'Message Size': <20}{'Count': <20}{'Total Latency(ms)': <20}{'Avg Latency(ms)': <20}"
SUMMARY = f"""{HEAD}
broadcast
                    2.0 KB              146                 11.12               0.08                0.43
                    98.25 MB            1                   8317.12             8317.12             0.20
reduce_scatter_tensor
                    678.86 MB           40                  602.29              9.69                1468.06
"""


def said(folder: Path, text: str) -> str:
    file = folder / "comms.log"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(NoUsableInput) as raised:
        discover([file])
    assert "a communication log of DeepSpeed" in str(raised.value) and "\n" not in str(raised.value)
    return str(raised.value)


def test_verbose_lines(tmp_path: Path) -> None:
    text = said(tmp_path, VERBOSE)
    assert "reduce_scatter_base 9.46 ms in 1 calls; all_gather_base 190 us in 2 calls" in text.replace("µs", "us")


def test_a_summary_counts_what_its_lines_said(tmp_path: Path) -> None:
    text = said(tmp_path, VERBOSE + SUMMARY)
    assert "broadcast 8.33 s in 147 calls; reduce_scatter_tensor 602 ms in 40 calls" in text
    assert "all_gather_base" not in text


def test_odd_numbers_are_left_out(tmp_path: Path) -> None:
    assert "It holds no call" in said(
        tmp_path, VERBOSE.replace("9.46", "9.4.6").replace("0.11", ".").replace("0.08", "..")
    )
