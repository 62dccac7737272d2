"""`ddprof plan sharding` and `ddprof plan scale`: layouts of a model over devices, from a run or its shape alone."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import click

from ddprof.cli.load import load_run
from ddprof.cli.output import text_or_json
from ddprof.cli.reading import Reading, reading_options
from ddprof.errors import UsageError
from ddprof.slices.planning.cluster import Cluster, cluster
from ddprof.slices.planning.document import as_json, print_plan
from ddprof.slices.planning.layout import BAND, EFFICIENCY, Estimate
from ddprof.slices.planning.layout_text import estimate_text, scale_text, sharding_text
from ddprof.slices.planning.search import best_by_kind, search
from ddprof.slices.planning.shape import OPTIMIZERS, Shape, parameters_of

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
        "--optimizer", default="adam", show_default=True, help="adam, adam8bit, adam-bf16, sgd-momentum, sgd."
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
    """Choose among DDP, ZeRO-1/2/3, FSDP and HSDP: memory by formula, step time for each.

    \b
    ddprof plan sharding ddprof-runs/latest
    ddprof plan sharding --params 6.7e9 --layers 32 --hidden 4096 --gpu RTX4090-24GB --world 4
    """
    if run is None:
        shape, on, batch, estimates = _search(world, given)
        flat = [e for e in estimates if e.layout.tensor == 1 and e.layout.pipeline == 1]
        _print_estimates(shape, on, world or 0, batch, flat, form, "ddprof.plan.sharding/1")
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
    """Predict a world of N: a run's data parallelism scaled, or the best DP x TP x PP layout of a model's shape.

    \b
    ddprof plan scale ddprof-runs/latest --world 64
    ddprof plan scale --params 130e9 --layers 80 --hidden 11520 --gpu A100-80GB --world 128 --batch 2048
    """
    if run is None:
        shape, on, batch, estimates = _search(world, given)
        _print_estimates(shape, on, world, batch, estimates, form, "ddprof.plan.scale/1")
        return
    from ddprof.slices.planning.scale_out import WORLDS, scale_out

    loaded = load_run(run, reading)
    worlds = (*(w for w in WORLDS if w < world), world)
    plan = scale_out(loaded.pricer, worlds, given["per_node"] or 8, node_factor)
    print_plan("ddprof.plan.scale/1", loaded.label, plan, form, scale_text)


def _search(world: int | None, given: dict[str, Any]) -> tuple[Shape, Cluster, int, list[Estimate]]:
    if not (world and given["layers"] and given["hidden"]):
        raise UsageError("without a RUN: --layers, --hidden and --world are needed (and --params where known)")
    for name in ("params", "node_gbps"):
        if given[name] is not None and not 0 < given[name] < inf:
            raise UsageError(f"--{name.replace('_', '-')} {given[name]:g}: want a number above 0")
    if given["optimizer"] not in OPTIMIZERS:
        raise UsageError(f"--optimizer {given['optimizer']}: one of {', '.join(OPTIMIZERS)}")
    params = given["params"] or parameters_of(given["layers"], given["hidden"], given["vocab"])
    if not params > given["vocab"] * given["hidden"]:
        raise UsageError(f"--params {params:g}: fewer than the embedding has ({given['vocab'] * given['hidden']:g})")
    shape = Shape(
        params, given["layers"], given["hidden"], given["seq"], given["vocab"],
        optimizer_bytes=OPTIMIZERS[given["optimizer"]],
    )  # fmt: skip
    on = cluster(given["gpu"], given["per_node"], given["node_gbps"])
    batch = given["batch"] or 4 * world
    return shape, on, batch, search(shape, on, world, batch, given["efficiency"] or EFFICIENCY)


def _print_estimates(
    shape: Shape, on: Cluster, world: int, batch: int, estimates: list[Estimate], form: str, schema: str
) -> None:
    kinds = best_by_kind(estimates)
    if form == "json":
        document = {"shape": shape, "cluster": on, "world": world, "batch": batch, "band": BAND, "layouts": kinds}
        click.echo(as_json(schema, "", document))
        return
    click.echo("\n".join(estimate_text(shape, on, world, batch, kinds)))
