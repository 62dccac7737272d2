"""Large matmuls run in fp32, or the model in double precision.

What it detects: matrix kernels on single precision operands that take a clear part of the step; parameters in float64,
as capture records them.
Why it costs: tensor cores run TF32 at 8 x and 16 bit at 16 x the fp32 rate (A100: 19.5, 156, 312 TFLOPS). float64 moves
twice the bytes of float32: at half its rate on CPUs and data-centre GPUs, at a 32nd and less on others.
How the gain is priced: the run is replayed with those kernels 2.5 times as fast, between Daydream's factors for
compute-bound (3) and memory-bound (2) kernels; of float64 with compute and transfers twice as fast.
How to fix: autocast to bf16, or allow TF32; `model.float()` and data in float32, which NumPy makes in float64.
Limits: small or memory-bound products gain less. Whether the model trains as well is the user's to judge.
Sources: Daydream (ATC'20); NVIDIA A100 datasheet; torch.set_float32_matmul_precision documentation.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ddprof.analyzers.job.measures import Measures
from ddprof.analyzers.replay.changes.work import HALF_PRECISION_SPEEDUP
from ddprof.analyzers.rules.evidence.present import text
from ddprof.analyzers.rules.evidence.spans import longest_fp32_gemm
from ddprof.finding_ids import COMPUTE_PRECISION
from ddprof.findings import Alters, Applies, Basis, Candidate, Change, Evidence, Fix, Rule
from ddprof.model import Device
from ddprof.units import format_share, format_us

DOUBLE = "float64"
MIN_SHARE = 0.05  # of the step, in single precision matrix kernels


def detect(measures: Measures) -> Iterator[Candidate]:
    """Find models in double precision, and single-precision matrix kernels that take a clear part of the step."""
    if all(facts.sidecar.parameters.dtype == DOUBLE for facts in measures.job.ranks):
        yield _double(measures)
        return
    fp32 = float(np.median(measures.fp32_gemm_us))
    if fp32 < MIN_SHARE * measures.step_us:
        return
    suggested, patch, applies = _remedy(measures.job.ranks[0].device)
    yield Candidate(
        id=RULE.id,
        summary=f"FP32 matrix products take {format_share(fp32 / measures.step_us)} of each step",
        lost_us=fp32 * (1 - 1 / HALF_PRECISION_SPEEDUP),
        changes=(Change("scale_kernels", (), (1 / HALF_PRECISION_SPEEDUP,), "fp32_gemm"),),
        basis=Basis.RECORDED,
        evidence=(
            Evidence(
                f"matrix kernels take {format_us(float(np.median(measures.gemm_us)))} per step, "
                f"{format_us(fp32)} of it in fp32"
            ),
            *longest_fp32_gemm(measures),
        ),
        fixes=(
            Fix(
                setting="precision",
                current=text(measures.settings.precision.float32_matmul_precision) or "fp32",
                suggested=suggested,
                applies=applies,
                patch=patch,
                why="fp32 products do not use the tensor cores",
                source="NVIDIA A100 datasheet; torch.set_float32_matmul_precision documentation",
                alters=Alters.PRECISION,
            ),
        ),
    )


def _double(measures: Measures) -> Candidate:
    compute_us = float(measures.cause_us("compute").mean())
    share = format_share(compute_us / measures.step_us)
    return Candidate(
        id=RULE.id,
        summary=f"the model computes in double precision ({DOUBLE}): compute takes {share} of each step",
        lost_us=compute_us / 2,
        changes=(Change("scale_compute", (), (2.0,)), Change("scale_transfer", (), (0.5,))),
        basis=Basis.RECORDED,
        evidence=(Evidence(f"the parameters of the model are {DOUBLE}: twice the bytes of float32"),),
        fixes=(
            Fix(
                setting="precision",
                current=DOUBLE,
                suggested="float32",
                patch="model.float()  # and data.astype(numpy.float32), as NumPy computes in float64",
                why="float32 moves half the bytes, and twice as many numbers or more at a time",
                source="torch.Tensor documentation; NVIDIA A100 datasheet",
                alters=Alters.PRECISION,
            ),
        ),
        band=0.25,
    )


def _remedy(device: Device) -> tuple[str, str, Applies]:
    """The lower precision that this device supports: TF32 and bf16 from Ampere on, fp16 alone on Volta and Turing."""
    if device.kind == "cuda" and device.compute_capability is not None and device.compute_capability < (8, 0):
        patch = 'with torch.autocast("cuda", dtype=torch.float16): ...  # backward through torch.amp.GradScaler'
        return "fp16 autocast with loss scaling", patch, ()
    autocast = 'with torch.autocast("cuda", dtype=torch.bfloat16): ...'
    if device.kind == "cuda":
        patch = f'torch.set_float32_matmul_precision("high")  # TF32\n{autocast}'
        return "bf16 autocast, or TF32", patch, (("autocast", "bf16"),)
    return "bf16 autocast", autocast, (("autocast", "bf16"),)


RULE = Rule(COMPUTE_PRECISION, "Matrix products run in fp32", detect, bound="compute")
