"""Random damage to real inputs: never a traceback, never nonsense columns, always a note or a one-line refusal."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import pytest

from ddprof.errors import DdprofError
from ddprof.readers import discover, read

pytestmark = pytest.mark.usefixtures("decoding")

INPUTS = (
    "traces/multi_rank/one_allreduce_2ranks/trace0.json",
    "traces/single_rank/amd_mi250/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    "traces/formats/horovod_timeline/horovod_8ranks_rank7_late.json",
    "traces/formats/flight_recorder/nccl_trace_rank_0",
    "traces/formats/flight_recorder/fr_rank_0.json",
    "traces/formats/nccl_profiler_jsonl/allreduce_4ranks.jsonl",
    "traces/formats/rocm_rpd/matmul_result.json",
    "traces/formats/rocm_rpd/matmul_result.rpd",
    "traces/formats/tensorflow/trace_viewer.trace.json.gz",
    "traces/formats/nsys_sqlite/nvtx_only_old_export.sqlite.gz",
    "traces/edge_cases/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
)
ROUNDS = 12


def damaged(content: bytes, draw: random.Random) -> bytes:
    """The content with one to three accidents: cut, deleted, overwritten, doubled, or swapped for odd values."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randrange(len(content) or 1)
        length = draw.choice((1, 3, 30, 500))
        accident = draw.randrange(6)
        if accident == 0:
            content = content[:at]
        elif accident == 1:
            content = content[:at] + content[at + length :]
        elif accident == 2:
            content = content[:at] + draw.randbytes(length) + content[at + length :]
        elif accident == 3:
            content = content[: at + length] + content[at:]
        elif accident == 4:
            old = draw.choice((b'"ts":', b'"dur":', b'"pid":', b'"tid":', b'"name":', b'"args":', b'"ph":', b'"rank":'))
            new = draw.choice(
                (b"null, ", b"[1], ", b'{"a": {}}, ', b'"x", ', b"1e999, ", b"-1, ", b"true, ", b"9" * 30 + b", ")
            )
            content = content.replace(old, old + new + b'"was' + old[1:], draw.choice((1, 50)))
        else:
            content = content.replace(b'"', b"", 1)
    return content


@pytest.mark.parametrize("name", INPUTS)
def test_damage_never_raises_anything_but_one_line(shared_dir: Path, tmp_path: Path, name: str) -> None:
    content = (shared_dir / name).read_bytes()
    plain = gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    for seed in range(ROUNDS):
        draw = random.Random(f"{name} {seed}")
        body = damaged(plain, draw)
        packed = draw.random() < 0.3
        path = tmp_path / f"{seed}-{Path(name).name}"
        path.write_bytes(damaged(gzip.compress(body), draw) if packed else body)
        try:
            for source in discover([path]).sources:
                trace = read(source)
                assert (trace.events["dur_ns"] >= 0).all()
                assert all(h.issue and h.effect and "\n" not in h.issue for h in trace.health)
        except DdprofError as error:
            assert str(error) and "\n" not in str(error)
