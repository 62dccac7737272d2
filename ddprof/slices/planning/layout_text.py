"""Plans of layouts as text: the best one in a sentence, all in a table, and the assumptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddprof.slices.planning.cluster import Cluster
from ddprof.slices.planning.layout import BAND, Estimate
from ddprof.slices.planning.shape import Shape
from ddprof.units import format_bytes, format_rate, format_share, format_us

if TYPE_CHECKING:  # `ddprof plan --help` needs no replay
    from ddprof.slices.planning.scale_out import ScalePlan
    from ddprof.slices.planning.sharding import ShardingPlan


def estimate_text(shape: Shape, on: Cluster, world: int, batch: int, kinds: list[Estimate]) -> list[str]:
    """The best layout in a sentence, the best of every kind as a table, and the assumptions."""
    best = kinds[0] if kinds else None
    lines = [f"{shape.params / 1e9:.4g}B parameters on {world} x {on.gpu}, {batch} sequences of {shape.seq} a step", ""]
    if best is None or not best.fits:
        least = min((e.memory_bytes for e in kinds), default=0.0)
        lines.append(
            f"nothing fits: the least is {least / 1e9:.3g} GB per device of {on.memory_bytes / 1e9:.3g} GB; more "
            "devices, offloading, or a smaller optimizer (--optimizer adam8bit)"
        )
    else:
        low, high = best.step_s * (1 - BAND), best.step_s * (1 + BAND)
        lines.append(
            f"{best.layout.name}: {best.step_s:.3g} s per step (range {low:.3g} to {high:.3g}), MFU "
            f"{format_share(best.mfu)} (range {format_share(best.mfu / (1 + BAND))} to "
            f"{format_share(best.mfu / (1 - BAND))}), {best.memory_bytes / 1e9:.3g} GB"
        )
    lines += ["", f"  {'layout':<30}{'micro':>6}{'chunks':>7} {'recompute':<10}{'GB':>6}{'step s':>8}{'MFU':>6}"
              f"{'TP':>8}{'bubble':>8}{'DP':>8}"]  # fmt: skip
    for item in kinds[:14]:
        one, step = item.layout, item.step_s
        shares = (
            f"{format_share(item.tensor_s / step):>8}",
            f"{format_share(item.bubble_s / step):>8}",
            f"{format_share(item.data_s / step):>8}",
        )
        lines.append(
            f"  {one.name:<30}{one.micro:>6}{one.chunks:>7} {one.recompute:<10}{item.memory_bytes / 1e9:>6.1f}"
            f"{step:>8.3g}{format_share(item.mfu):>6}{''.join(shares)}{'' if item.fits else '  does not fit'}"
        )
    lines += [
        "",
        f"memory per device: Psi x (2 + 2 + {shape.optimizer_bytes:g}), each part divided where the stage shards it, "
        "+ activations 34 s b h per layer (2 s b h recomputed)",
        f"assumed: {on.per_node} devices a node, {format_rate(on.link_bytes_per_s)} between them, "
        f"{format_rate(on.node_bytes_per_s)} out of a node, 80 % of that reached; range {format_share(BAND)}",
    ]
    return lines


def sharding_text(plan: ShardingPlan) -> list[str]:
    """The options as a table, then their inputs."""
    lines = [
        f"{plan.params / 1e6:.4g} M parameters over {plan.ranks} ranks; the run takes {format_us(plan.step_us)} per "
        f"step, {format_us(plan.compute_us)} without communication",
        "",
        f"  {'sharding':<38}{'state per rank':>15}{'step':>10}{'exposed':>10}  formula",
    ]
    for option in plan.options:
        fits = {True: "", False: "  does not fit", None: ""}[option.fits]
        lines.append(
            f"{'*' if option.is_now else ' '} {option.name:<38}{format_bytes(option.state_bytes):>15}"
            f"{format_us(option.step_us):>10}{format_us(option.exposed_us):>10}  {option.formula}{fits}"
        )
    lines += [
        "",
        "* as the run is sharded, in DDP's default buckets. ZeRO-1 and 2 move what DDP does, ZeRO-3 half more.",
    ]
    unjudged = "not recorded, so whether an option fits is not judged"
    other = unjudged if plan.other_bytes is None else f"{format_bytes(plan.other_bytes)} beside the state"
    memory = "unknown" if plan.memory_bytes is None else format_bytes(plan.memory_bytes)
    lines.append(f"device memory: {memory}; activations and buffers: {other}")
    if plan.compression is not None:
        c = plan.compression
        lines.append(
            f"gradient compression: {format_us(c.exposed_us)} of transfer is exposed; 16 bit saves "
            f"{format_us(c.half_saves_us)} and pays only if casting takes less (about {format_us(c.half_packing_us)}); "
            f"a tenth of the bytes (PowerSGD) saves {format_us(c.tenth_saves_us)}, and pays only if packing takes less"
        )
    return lines


def scale_text(plan: ScalePlan) -> list[str]:
    """The step by world size, then the assumptions."""
    lines = [f"  {'ranks':>6}{'step':>10}{'range':>24}{'per-rank throughput':>22}"]
    for point in plan.points:
        span = f"{format_us(point.low_us)} to {format_us(point.high_us)}"
        now = "  now" if point.world == plan.world else ""
        lines.append(
            f"  {point.world:>6}{format_us(point.step_us):>10}{span:>24}{format_share(point.efficiency):>21}{now}"
        )
    return [*lines, "", "assumed:", *(f"  {text}" for text in plan.assumptions)]
