"""TraceLens's figures on one folder of traces, as JSON. Run by its own interpreter."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from TraceLens import NcclAnalyser, TreePerfAnalyzer  # type: ignore[import-not-found]


def main() -> None:
    """Shares are means over ranks of its GPU timeline; the late rank waits least in its straggler summary, and
    `late_share` is how much longer the others wait there, over the whole time.
    """
    files = sorted(map(str, Path(sys.argv[1]).iterdir()), key=_numbers)
    lines = [TreePerfAnalyzer.from_file(file).get_df_gpu_timeline().set_index("type") for file in files]
    percent = {
        name: sum(line["percent"].get(name, 0.0) for line in lines) / len(lines) / 100 for name in lines[0].index
    }
    total_us = 1e3 * max(line["time ms"]["total_time"] for line in lines)
    shares = {
        "communication": percent["exposed_comm_time"],
        "host side": percent["idle_time"] + percent["exposed_memcpy_time"],
    }
    waits = NcclAnalyser(files, len(files)).build_df_straggler_summary(strict_metadata_check=False)
    late, late_share = None, 0.0
    if len(waits):
        late = int(waits["rank"].iloc[0])
        wait_us = waits["total_wait_time_us"]
        late_share = float((wait_us.iloc[1:].median() - wait_us.iloc[0]) / total_us)
    print(json.dumps({"late": late, "late_share": late_share, "shares": shares}))


def _numbers(file: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", Path(file).name)]


if __name__ == "__main__":
    main()
