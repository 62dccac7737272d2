"""`ddprof plan sharding` and `ddprof plan scale`: layouts of a model over devices, from a run or its shape alone."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

import click

from ddprof.cli.load import load_run
from ddprof.cli.output import text_or_json
from ddprof.cli.reading import Reading, reading_options
from ddprof.errors import UsageError
from ddprof.slices.planning.layout import (
    BAND,
    EFFICIENCY,
    OPTIMIZERS,
    Cluster,
    Estimate,
    Shape,
    best_by_kind,
    cluster,
    parameters_of,
    search,
)
from ddprof.units import format_bytes, format_rate, format_share, format_us

if TYPE_CHECKING:  # `ddprof plan --help` needs no replay
    from ddprof.slices.planning.sharding import ScalePlan, ShardingPlan
import dataclasses
import json
import math
from typing import TypeVar

from msgspec import Struct

from ddprof.cli.load import tell

SHAPE_OPTIONS = (
    click.option("--params", type=float, help="Parameters, as 7e9 (default: 12 L h^2 + V h)."),
    click.option("--layers", type=click.IntRange(1), help="Transformer layers."),
    click.option("--hidden", type=click.IntRange(1), help="Hidden size."),
    click.option("--seq", type=click.IntRange(1), default=2048, show_default=True, help="Tokens of a sequence."),
    click.option("--vocab", type=click.IntRange(1), default=51_200, show_default=True, help="Vocabulary."),
    click.option("--gpu", default="A100-80GB", show_default=True, help="Device, as A100-80GB."),
    click.option("--per-node", type=click.IntRange(1), help="Devices of a node (default: the device's usual node)."),
    click.option("--node-gbps", type=float, help="Network bandwidth of a node, gigabits per second."),
    click.option("--batch", type=click.IntRange(1), help="Sequences of a step, all devices (default: 4 per device)."),
    click.option(
        "--optimizer",
        type=click.Choice([*OPTIMIZERS]),
        default="adam",
        show_default=True,
        help="Whose state takes memory.",
    ),
    click.option("--efficiency", type=click.FloatRange(0.05, 1.0), help="Share of peak in wide products (0.65)."),
)


def shape_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that describe a model and its devices without a run."""
    for option in reversed(SHAPE_OPTIONS):
        command = option(command)
    return command


@click.command("sharding")
@click.argument("run", required=False)
@click.option("--world", type=click.IntRange(2), help="Devices, where there is no run.")
@shape_options
@text_or_json
@reading_options
def sharding(run: str | None, world: int | None, form: str, reading: Reading, **given: Any) -> None:
    """Compare DDP, ZeRO-1/2/3, FSDP and HSDP: memory and step.

    Memory is by formula.

    \b
    ddprof plan sharding ddprof-runs/latest
    ddprof plan sharding --params 6.7e9 --layers 32 --hidden 4096 --gpu RTX4090-24GB --world 4
    """
    if run is None:
        _print_layouts(world, given, form, "ddprof.plan.sharding/1", of_data_alone=True)
        return
    from ddprof.slices.planning.sharding import plan_sharding

    loaded = load_run(run, reading)
    print_plan("ddprof.plan.sharding/1", loaded.label, plan_sharding(loaded.pricer), form, sharding_text)


@click.command("scale")
@click.argument("run", required=False)
@click.option("--world", type=click.IntRange(2), required=True, help="Ranks (with a run) or devices, 2 to 1,024.")
@click.option("--node-factor", type=click.FloatRange(1.0), default=4.0, show_default=True, help="With a run: how many "
              "times slower than its links the network between nodes is.")  # fmt: skip
@shape_options
@text_or_json
@reading_options
def scale(run: str | None, world: int, node_factor: float, form: str, reading: Reading, **given: Any) -> None:
    """Predict the step on N ranks or devices.

    With RUN its data parallelism is scaled; without, the best DP x TP x PP layout of a model's shape is found.

    \b
    ddprof plan scale ddprof-runs/latest --world 64
    ddprof plan scale --params 130e9 --layers 80 --hidden 11520 --gpu A100-80GB --world 128 --batch 2048
    """
    if run is None:
        _print_layouts(world, given, form, "ddprof.plan.scale/1")
        return
    from ddprof.slices.planning.sharding import WORLDS, scale_out

    loaded = load_run(run, reading)
    worlds = (*(w for w in WORLDS if w < world), world)
    plan = scale_out(loaded.pricer, worlds, given["per_node"] or 8, node_factor)
    print_plan("ddprof.plan.scale/1", loaded.label, plan, form, scale_text)


def _print_layouts(
    world: int | None, given: dict[str, Any], form: str, schema: str, of_data_alone: bool = False
) -> None:
    """Print the best layouts of a shape; `of_data_alone`: without tensor and pipeline ranks. Raises UsageError."""
    if not (world and given["layers"] and given["hidden"]):
        raise UsageError("without a RUN: --layers, --hidden and --world are needed (and --params where known)")
    for name in ("params", "node_gbps"):
        if given[name] is not None and not 0 < given[name] < inf:
            raise UsageError(f"--{name.replace('_', '-')} {given[name]:g}: want a number above 0")
    params = given["params"] or parameters_of(given["layers"], given["hidden"], given["vocab"])
    if not params > given["vocab"] * given["hidden"]:
        raise UsageError(f"--params {params:g}: fewer than the embedding has ({given['vocab'] * given['hidden']:g})")
    shape = Shape(
        params, given["layers"], given["hidden"], given["seq"], given["vocab"],
        optimizer_bytes=OPTIMIZERS[given["optimizer"]],
    )  # fmt: skip
    on = cluster(given["gpu"], given["per_node"], given["node_gbps"])
    batch = given["batch"] or 4 * world
    estimates = search(shape, on, world, batch, given["efficiency"] or EFFICIENCY)
    if of_data_alone:
        estimates = [e for e in estimates if e.layout.tensor == 1 and e.layout.pipeline == 1]
    kinds = best_by_kind(estimates)
    if form == "json":
        document = {"shape": shape, "cluster": on, "world": world, "batch": batch, "band": BAND, "layouts": kinds}
        click.echo(as_json(schema, "", document))
        return
    click.echo("\n".join(estimate_text(shape, on, world, batch, kinds)))


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
            f"gradient compression: {format_us(c.exposed_us)} of transfer is exposed in the run; 16 bit saves "
            f"{format_us(c.half_saves_us)} of it, and casting takes about {format_us(c.half_packing_us)}; a tenth of "
            f"the bytes (PowerSGD) saves {format_us(c.tenth_saves_us)}, less what packing takes"
        )
    return lines


def scale_text(plan: ScalePlan) -> list[str]:
    """The step by world size, then the assumptions."""
    lines = [f"  {'ranks':>6}{'step':>10}{'range':>24}{'per-rank throughput':>22}{'in groups':>12}{'by a server':>13}"]
    for point in plan.points:
        span = f"{format_us(point.low_us)} to {format_us(point.high_us)}"
        ways = [f"{'' if us is None else format_us(us):>12}" for us in (point.in_groups_us, point.by_server_us)]
        now = "now" if point.world == plan.world else ""
        lines.append(
            f"  {point.world:>6}{format_us(point.step_us):>10}{span:>24}{format_share(point.efficiency):>21} "
            f"{' '.join(ways)}  {now}".rstrip()
        )
    lines += ["", "in groups: gradients are summed inside nodes, then between them; by a server: by one rank, for all"]
    return [*lines, "", "assumed:", *(f"  {text}" for text in plan.assumptions)]


Plan = TypeVar("Plan")


def print_plan(schema: str, label: str, plan: Plan, form: str, text: Callable[[Plan], list[str]]) -> None:
    """Print a plan as JSON, or as the lines of `text`, by `form`."""
    tell(as_json(schema, label, plan) if form == "json" else "\n".join(text(plan)))


def as_json(schema: str, label: str, plan: Any) -> str:
    """A plan (a dataclass or a Struct) as a JSON document; curves with their best and flat values."""
    return json.dumps({"schema": schema, "run": label, **_plain(plan)}, indent=1, allow_nan=False)


def _plain(value: Any) -> Any:
    is_struct = isinstance(value, Struct)
    if is_struct or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        names = value.__struct_fields__ if is_struct else [field.name for field in dataclasses.fields(value)]
        fields = {name: _plain(getattr(value, name)) for name in names}
        if fields.get("points") and "knob" in fields:
            curve: Any = value
            fields |= {"best": curve.best.value, "flat": [point.value for point in curve.flat]}
        return fields
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else None
    return value
