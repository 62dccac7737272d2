"""Catalogue of the workloads, their faults, and the fix of each fault.

The scripts take their `--fault` and `--fix` choices from here, `python -m benchmarks.workload_pairs` its matrix.
Nothing heavy is imported: the table can be read without torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

NO_FAULT = "none"
JOB, SLOW, FIRST = "job", "slow", "first"  # culprits: none in particular, --fault-rank, rank 0


@dataclass(frozen=True)
class Fault:
    """A fault and the finding expected for it. `fixes`: `--fix` name -> what it does, in words.

    `rates`: the loopback's rate with the fault and with its fix, where the link itself is slowed (slow_link.py).
    `also`: identifiers that are right as well. `ms`: default size per step. `needs`: "cuda" where a CPU cannot show
    it. `priced`: False where the fault wastes work rather than time of a step.
    """

    finding: str
    fixes: Mapping[str, str]
    culprit: str = JOB
    also: tuple[str, ...] = ()
    ms: float = 100.0
    needs: str = ""
    priced: bool = True
    rates: tuple[str, str] | None = None

    def ranks(self, fault_rank: int) -> tuple[int, ...]:
        """The culprits."""
        return {JOB: (), SLOW: (fault_rank,), FIRST: (0,)}[self.culprit]


@dataclass(frozen=True)
class Workload:
    """A training script of this folder. `packages`: what must be installed beside torch.

    `fault_share`: of its faults' default sizes, what the regression suite injects: about one healthy step.
    """

    name: str
    title: str
    faults: Mapping[str, Fault]
    world_size: int = 2
    packages: tuple[str, ...] = ()
    fault_share: float = 1.0
    sizes: Mapping[str, str] = field(default_factory=dict)  # options for a short run, e.g. {"--steps": "20"}

    @property
    def script(self) -> str:
        """File name of the script."""
        return f"{self.name}.py"


# Fixes that are a setting of `ddprof whatif`.
AS_SETTING = {
    "workers": "num_workers=4",
    "link": "bandwidth=2",
    "faster": "bandwidth=2",
    "compress": "compression=fp16",
    "keep": "reshard_after_forward=False",
}
_OR_OVERLAP = ("comm.no_overlap", "comm.latency_bound")
STORAGE = "samples are read without delay"
WORKERS = "four DataLoader workers"

_SHARED = {
    "slow-loader": Fault("input.starved", {"workers": WORKERS, "storage": STORAGE}),
    "few-workers": Fault("input.starved", {"workers": WORKERS, "storage": STORAGE}, ms=200.0),
    "loader-straggler": Fault("input.straggler", {"workers": WORKERS, "storage": STORAGE}, SLOW),
    "slow-rank": Fault("straggler.compute", {"device": "the rank computes no more than the others"}, SLOW, ms=150.0),
    "slow-host": Fault("straggler.host", {"host": "nothing else runs on that host's CPU"}, SLOW),
    "sleepy-host": Fault("straggler.host", {"host": "the host does not sleep between operators"}, SLOW),
    "gc": Fault("host.gc", {"together": "collections on all ranks at the same step, every 1000 steps"}),
    "checkpoint": Fault(
        "host.checkpoint", {"async": "a thread writes the copied state", "never": "no saves"}, FIRST, ms=40.0
    ),
    "imbalance": Fault("straggler.imbalance", {"balanced": "every rank gets the mean amount of work"}),
    "unsharded": Fault("input.unsharded", {"sharded": "DistributedSampler"}, priced=False),
}
SELDOM = "every thousandth step"
MANY_OPERATORS_MS = 40.0  # of operators of some microseconds each: more of them would fill the trace and the memory
_MEETINGS = {
    "barriers": Fault("comm.barrier", {"none": "no barriers"}, ms=40.0),
    "objects": Fault("comm.barrier", {"own": "every rank keeps its own records"}),
    "gathered-metrics": Fault(
        "comm.barrier",
        {"at-end": "counts stay on their rank until the end"},
        also=("comm.latency_bound", "host.script"),
    ),
}
_CHORES = {
    "moving-average": Fault("host.script", {"seldom": SELDOM}, ms=MANY_OPERATORS_MS),
    "statistics": Fault("host.script", {"seldom": SELDOM}, also=("host.sync",), ms=MANY_OPERATORS_MS),
    "sync-log": Fault("host.script", {"thread": "a thread sends the records"}, also=("host.checkpoint",)),
}
_SENT = {
    "sent-each-time": Fault(
        "comm.bandwidth_bound", {"no-sync": "model.no_sync() but for the last part"}, also=_OR_OVERLAP
    ),
    "sent-buffers": Fault("comm.bandwidth_bound", {"own-buffers": "broadcast_buffers=False"}, also=_OR_OVERLAP),
    "unused-parameters": Fault(
        "comm.latency_bound", {"all-used": "find_unused_parameters=False"}, also=_OR_OVERLAP, priced=False
    ),
}
_LOADER_PROCESSES = {
    "new-workers": Fault("input.starved", {"persistent": "persistent_workers=True"}),
    "one-file": Fault("input.starved", {"own-files": "every worker opens a file of its own"}, ms=200.0),
}
_NEVER = "another job does it"
_FIRST = {
    "first-evaluates": Fault(
        "host.evaluation",
        {"never": _NEVER},
        FIRST,
        also=("host.checkpoint", "straggler.host", "straggler.unexplained"),
    ),
    "first-statistics": Fault(
        "straggler.unexplained",
        {"seldom": SELDOM},
        FIRST,
        also=("straggler.host", "host.script", "host.checkpoint"),
        ms=MANY_OPERATORS_MS,
    ),
}
_WAITING_SAVE = Fault(
    "host.checkpoint", {"async": "a thread writes, and nobody waits", "never": "no saves"}, FIRST, ms=40.0
)
_PREPARED = {"stored": "what comes out of it is stored"}
_UNEVEN = Fault("straggler.imbalance", {"balanced": "every rank gets the mean amount of work"}, SLOW)
_BUCKETS = {
    "tiny-buckets": Fault("comm.latency_bound", {"buckets": "DDP's default of 25 MiB"}),
    "no-overlap": Fault("comm.no_overlap", {"buckets": "a quarter of the model per bucket"}),
}
_VOLUME = {"compress": "gradients travel with 16 bit", "link": "a link twice as fast"}
_SLOW_LINK = Fault("comm.bandwidth_bound", {"link": "a link twice as fast"}, also=("comm.no_overlap",))
_GIGABIT = ("1gbit", "1gbit")  # where the machine's own link hides what the fault costs
_SHAPED_LINK = Fault(
    "comm.bandwidth_bound", {"faster": "a link twice as fast"}, also=("comm.no_overlap",), rates=("400mbit", "800mbit")
)
_ITEM = Fault("host.sync", {"deferred": "values stay on the device"}, needs="cuda")


def _only(*names: str) -> dict[str, Fault]:
    return {name: _SHARED[name] for name in names}


_ALL = (
    Workload(
        "mnist_ddp",
        "a CNN on a generated MNIST-like set, DistributedDataParallel",
        {
            **_SHARED,
            **_BUCKETS,
            "big-model": Fault("comm.bandwidth_bound", {"compress": _VOLUME["compress"]}, also=("comm.no_overlap",)),
            "slow-link": _SLOW_LINK,
            "shaped-link": _SHAPED_LINK,
            "item": _ITEM,
            **_MEETINGS,
            **_CHORES,
            "clip-each": Fault("host.script", {"at-once": "clip_grad_norm_ over all parameters"}),
            "zero-grad": Fault("host.script", {"none": "zero_grad(set_to_none=True)"}),
            "threads": Fault("host.stalled", {"threads": "one thread per rank"}),
            **_SENT,
            **_LOADER_PROCESSES,
            **_FIRST,
            "waiting-save": _WAITING_SAVE,
            "uneven-shards": _UNEVEN,
        },
        fault_share=0.5,
    ),
    Workload(
        "resnet50_ddp",
        "ResNet-50 on generated compressed images that are decoded, DistributedDataParallel",
        {
            "decode": Fault("input.starved", {"cached": "images are stored decoded"}),
            **_only("few-workers", "loader-straggler", "slow-rank", "slow-host", "gc", "checkpoint", "imbalance"),
            **_BUCKETS,
            "no-overlap": replace(_BUCKETS["no-overlap"], rates=_GIGABIT),
            "slow-link": _SLOW_LINK,
            "augment": Fault("input.starved", _PREPARED, also=("host.script",)),
        },
        fault_share=0.7,
    ),
    Workload(
        "bert_accelerate",
        "BERT fine-tuning on generated token sequences of unequal length, Hugging Face Accelerate",
        {
            **_only("slow-loader", "loader-straggler", "slow-rank", "sleepy-host", "gc", "checkpoint", "imbalance"),
            "item": _ITEM,
            "tokenize": Fault("input.starved", _PREPARED, also=("host.script",)),
            **{name: _MEETINGS[name] for name in ("gathered-metrics",)},
            **{name: _FIRST[name] for name in ("first-evaluates",)},
            "uneven-shards": _UNEVEN,
        },
        packages=("transformers", "accelerate"),
        fault_share=0.5,
    ),
    Workload(
        "gpt_fsdp2",
        "a GPT with fully_shard per block",
        {
            "resharding": Fault("comm.sharding", {"keep": "reshard_after_forward=False"}, rates=_GIGABIT),
            **_only("slow-loader", "loader-straggler", "slow-rank", "slow-host", "gc", "checkpoint", "imbalance"),
            "item": _ITEM,
            "moving-average": _CHORES["moving-average"],
        },
    ),
    Workload(
        "llama_hsdp_tp",
        "a Llama-style model, tensor parallel inside replicas that shard (two-dimensional mesh)",
        _only("slow-loader", "loader-straggler", "slow-rank", "slow-host", "gc"),
        world_size=4,
    ),
    Workload(
        "deepspeed_zero",
        "a GPT under DeepSpeed ZeRO 1, 2 or 3",
        {
            **_only("slow-loader", "loader-straggler", "slow-rank", "slow-host", "imbalance"),
            "tiny-buckets": Fault("comm.latency_bound", {"buckets": "DeepSpeed's default of 5e8 elements"}),
        },
        packages=("deepspeed",),
        fault_share=0.5,
    ),
    Workload(
        "pipeline_1f1b",
        "a GPT in pipeline stages, schedule 1F1B",
        {
            "stage-imbalance": Fault("pipeline.imbalance", {"even": "the same number of layers on every stage"}, SLOW),
            "few-microbatches": Fault("pipeline.bubble", {"microbatches": "twice as many of half the size"}),
            **_only("loader-straggler"),
        },
    ),
)
WORKLOADS: Mapping[str, Workload] = MappingProxyType({workload.name: workload for workload in _ALL})
