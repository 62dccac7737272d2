"""FLOPs and least bytes of operators by hand."""

from __future__ import annotations

import math

import pytest

from ddprof.analyzers.facts.kernels import operator_flops
from ddprof.analyzers.kernel_table.roofline import least_bytes
from ddprof.hardware import memory_bandwidth
from ddprof.tables import NULL

BF16 = 2


def test_a_product_reads_both_operands_and_writes_its_result() -> None:
    assert least_bytes("mm", [[64, 32], [32, 128]], BF16) == BF16 * (64 * 32 + 32 * 128 + 64 * 128)
    assert least_bytes("addmm", [[128], [64, 32], [32, 128]], BF16) == least_bytes("mm", [[64, 32], [32, 128]], BF16)
    assert least_bytes("linear", [[8, 64, 32], [128, 32]], BF16) == BF16 * (8 * 64 * 32 + 128 * 32 + 8 * 64 * 128)
    assert math.isnan(least_bytes("mm", [[64, 32], [32, 128]], NULL))
    assert math.isnan(least_bytes("mul", [[64, 32], [64, 32]], BF16))


def test_attention_has_tokens_and_heads_where_each_operator_has_them() -> None:
    batch, heads, tokens, width = 2, 8, 512, 64
    exact = 4.0 * batch * heads * tokens * tokens * width  # queries by keys, then by values
    called = [[batch, heads, tokens, width]] * 3
    launched = [[batch, tokens, heads, width]] * 3
    assert operator_flops("aten::_scaled_dot_product_flash_attention", called) == exact
    assert operator_flops("aten::_flash_attention_forward", launched) == exact
    assert operator_flops("aten::_flash_attention_backward", launched) == 2.5 * exact
    assert least_bytes("_flash_attention_forward", launched, BF16) == BF16 * 4 * batch * heads * tokens * width


def test_known_devices_have_a_memory_rate() -> None:
    assert memory_bandwidth("NVIDIA H100 80GB HBM3") == pytest.approx(3.35e12)
    assert memory_bandwidth("NVIDIA A100-SXM4-80GB") == pytest.approx(2.039e12)
    assert memory_bandwidth("NVIDIA A100-SXM4-40GB") == pytest.approx(1.555e12)
    assert memory_bandwidth("a device of tomorrow") is None
