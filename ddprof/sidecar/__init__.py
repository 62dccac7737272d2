"""The sidecar, typed: capture's knowledge of a rank beyond its trace (docs/run-folder.md).

Only what the analysis uses is here, under the names that it has in the file. Missing is None or empty; times are unix
nanoseconds of the rank's own clock. `readers.side_files` parses the files: values of another type are missing.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from ddprof.sidecar.applied import MadeLine, SettingOutcome
from ddprof.sidecar.bounded import Count as Count
from ddprof.sidecar.bounded import Rank as Rank
from ddprof.sidecar.bounded import Real as Real
from ddprof.sidecar.bounded import Whole as Whole
from ddprof.sidecar.calls import CallingLine, ModelBuffers, ScriptCall, WrappedModel
from ddprof.sidecar.loading import FetchSpan as FetchSpan
from ddprof.sidecar.loading import LoaderSettings as LoaderSettings
from ddprof.sidecar.loading import SamplerSettings as SamplerSettings
from ddprof.sidecar.loading import TimedFetches as TimedFetches
from ddprof.sidecar.loading import WorkerLine as WorkerLine
from ddprof.sidecar.training import BatchNorms, LeftInEvaluation, OptimizerGradients, ReplicaState, ShuffledPasses


class RankDevice(Struct, frozen=True):
    """The device of the rank, as its driver names it."""

    uuid: str | None = None
    pci_address: str | None = None
    total_memory_bytes: Whole | None = None


class DdpSettings(Struct, frozen=True):
    """Settings of DistributedDataParallel; sizes in MiB."""

    bucket_cap_mb: Real | None = None
    first_bucket_mb: Real | None = None
    broadcast_buffers: bool | None = None
    buffers: ModelBuffers = ModelBuffers()


class FsdpSettings(Struct, frozen=True):
    """Fully sharded data parallelism (`version` 1 or 2; None: not used): `units` are the modules gathered as one."""

    version: Whole | None = None
    units: Whole | None = None
    reshard_after_forward: bool | None = None
    backward_prefetch: str | None = None  # "BACKWARD_PRE", ...
    limit_all_gathers: bool | None = None


class DeepSpeedSettings(Struct, frozen=True):
    """DeepSpeed's engine; `reduce_bucket_size` in elements."""

    zero_stage: Whole | None = None
    reduce_bucket_size: Whole | None = None


class PipelineSettings(Struct, frozen=True):
    """The running pipeline schedule: `stage_indices` are the stages of this rank, of `stages` of the job."""

    schedule: str | None = None
    stage_indices: tuple[Count, ...] = ()
    stages: Count | None = None
    microbatches: Count | None = None


class OptimizerSettings(Struct, frozen=True):
    """Settings of the optimizer; `fused` None: torch's own default."""

    name: str | None = field(name="class", default=None)
    fused: bool | None = None
    learning_rates: tuple[Real | None, ...] = ()  # of its parameter groups, before any schedule


class ModelParameters(Struct, frozen=True):
    """A rank's parameters of the model: `count` elements, mostly of `dtype`."""

    count: Count | None = None
    dtype: str | None = None
    sharded: bool | None = None


class PrecisionSettings(Struct, frozen=True):
    """Number formats of matrix products, and threads per operator on the CPU."""

    float32_matmul_precision: str | None = None
    num_threads: Whole | None = None


class Processors(Struct, frozen=True):
    """CPUs of the process (number, and list: "0-3,8"), ranks of its host that share them, and CPUs of the machine."""

    usable: Whole | None = None
    local_ranks: Rank | None = None
    cores: str | None = None
    machine: Whole | None = None


class BatchTensor(Struct, frozen=True):
    """A tensor of the first batch; equal fingerprints: equal values."""

    fingerprint: str | None = None


class FirstBatch(Struct, frozen=True):
    """The first batch of the run."""

    tensors: tuple[BatchTensor, ...] = ()


class FedBatch(Struct, frozen=True, gc=False):
    """Input of one step: elements of all its tensors, padding included."""

    step: Whole
    elements: Real
    batches: Count = 0  # 0: not recorded
    samples: Count = 0


class Fetch(Struct, frozen=True, gc=False):
    """One fetched batch, from a worker or (worker None) the training process. 0, None: not recorded."""

    dur_ns: Count
    worker: Whole | None = None
    start_ns: Count = 0
    cpu_ns: Count = 0
    collate_ns: Count = 0
    samples: Count = 0
    waited_ns: Count | None = None  # of a worker that was ready to run and had no CPU


class GradientReady(Struct, frozen=True, gc=False):
    """Time at which the gradient of one parameter was ready."""

    size_bytes: Count
    ready_ns: Count


class ReadyGradients(Struct, frozen=True):
    """The gradients of one step, in order of arrival."""

    parameters: tuple[GradientReady, ...] = ()


class AllocatorCounts(Struct, frozen=True):
    """CUDA's caching allocator: failed allocations, after which it returned its cache to the driver and retried."""

    retries: Whole | None = None
    peak_allocated_bytes: Whole | None = None  # over the whole run, as the next
    peak_reserved_bytes: Whole | None = None


class StepTimes(Struct, frozen=True, gc=False):
    """One step by the rank's own timers; phases are inclusive. `profiled`: inside a trace window."""

    index: Whole | None = None
    start_ns: Count | None = None
    end_ns: Count | None = None
    data_ns: Count | None = None
    forward_ns: Count | None = None
    backward_ns: Count | None = None
    optimizer_ns: Count | None = None
    collective_ns: Count = 0  # in functions of torch.distributed that Python calls, and waits for what they began
    waited_ns: Count | None = None  # of the training thread, ready to run without a CPU; and in each phase
    data_waited_ns: Count = 0
    forward_waited_ns: Count = 0
    backward_waited_ns: Count = 0
    optimizer_waited_ns: Count = 0
    profiled: bool | None = None

    @property
    def span_ns(self) -> tuple[int, int] | None:
        """Start and end; None where one is missing or they are out of order."""
        if self.start_ns is None or self.end_ns is None or self.end_ns <= self.start_ns:
            return None
        return self.start_ns, self.end_ns

    @property
    def length_ns(self) -> int | None:
        """Length of the step, ns; None where it is not known."""
        return None if self.span_ns is None else self.span_ns[1] - self.span_ns[0]


class TracedWindow(Struct, frozen=True):
    """A trace window, the rank's delay for writing its trace, and what was not recorded in it."""

    start_ns: Count | None = None
    end_ns: Count | None = None
    export_pause_ns: Count | None = None
    left_out: tuple[str, ...] = ()  # instruments: windows had cost too much with them


class ThreadTime(Struct, frozen=True):
    """A thread that the script started, and its CPU time."""

    name: str = ""
    cpu_ns: Whole = 0


class CpuTime(Struct, frozen=True):
    """Time of a rank's process: elapsed, on a CPU (the training thread), and ready to run without a CPU. `beside`: the
    script's own threads that compute at least half as long as the training thread. `process_ns`, `machine_ns`: CPU time
    of the process with its children, and of all that ran on the CPUs it may use.
    """

    dur_ns: Count
    cpu_ns: Whole = 0
    waited_ns: Whole = 0
    beside: tuple[ThreadTime, ...] = ()
    process_ns: Whole | None = None
    machine_ns: Whole | None = None


class CpuWaits(Struct, frozen=True):
    """Waiting for a CPU in each trace window, and from the first window to the end of the run."""

    windows: tuple[CpuTime, ...] = ()
    run: CpuTime | None = None


class Pause(Struct, frozen=True, gc=False):
    """A garbage collection, the saving of a checkpoint, or an evaluation.

    `was_called`: a collection that a line of Python calls, or while the interpreter starts none of its own. `at`: that
    line, or the one that calls `eval()`, "train.py:88 tidy()"; "" where it is not known.
    """

    start_ns: Count
    dur_ns: Count
    was_called: bool = False
    at: str = ""


class HostWait(Struct, frozen=True):
    """A line of the script that made the host wait for the device, over all trace windows."""

    source_line: str  # file:number
    what: str  # item, cpu, synchronize, ...
    count: Count
    total_ns: Count
    source: str | None = None  # the line's text


class NcclLog(Struct, frozen=True):
    """NCCL's log of its connections: channels of this rank by transport ("P2P/CUMEM", "NET/Socket", ...)."""

    version: str | None = None
    transports: dict[str, Real] = {}


class LinkedGpu(Struct, frozen=True):
    """A GPU on the bus of its host: PCIe lanes now and at most."""

    address: str | None = None
    pcie_width: Whole | None = None
    pcie_width_max: Whole | None = None


class InfinibandPort(Struct, frozen=True):
    """A port as /sys describes it."""

    state: str = ""
    rate: str = ""


class Topology(Struct, frozen=True):
    """Links between the devices of a host; `links` by pair in terms of `nvidia-smi topo -m` ("NV18", "SYS")."""

    links: dict[str, str] = {}
    gpus: tuple[LinkedGpu, ...] = ()
    infiniband: dict[str, InfinibandPort] = {}


class GpuTally(Struct, frozen=True):
    """One GPU over the run, sampled once a second; all fields but `busy_samples` are over its busy samples."""

    index: Whole | None = None  # of nvidia-smi
    uuid: str | None = None
    busy_samples: Whole | None = None
    throttled: dict[str, Real] = {}  # reason -> samples
    sm_clock_mhz: Real | None = None
    power_limit_mw: Real | None = None
    temperature_max_c: Real | None = None


class HostHardware(Struct, frozen=True):
    """The machine under a rank: its host's connections, and its own GPU (None: not sampled)."""

    topology: Topology = Topology()
    gpu: GpuTally | None = None


class StepMedians(Struct, frozen=True):
    """Medians of a rank's steps outside trace windows, phase by phase; `rest_ns`: outside all phases."""

    step_ns: Count
    data_ns: Count = 0
    forward_ns: Count = 0
    backward_ns: Count = 0
    optimizer_ns: Count = 0
    collective_ns: Whole = 0
    rest_ns: Whole | None = None


class RankEnd(Struct, frozen=True):
    """End of the process; `error`: the exception that ended it, None where it ended by itself."""

    error: dict[str, Any] | None = None


class Sidecar(Struct, frozen=True, kw_only=True):
    """Everything known of one rank. `fetching` and `hardware` come from other files of the run folder."""

    schema: str | None = None
    state: str = ""  # "running", "exit", "crash", "killed"
    end: RankEnd | None = None
    steps_total: Whole | None = None
    rank: Rank | None = None
    world_size: Rank | None = None
    host: str | None = None
    device: RankDevice = RankDevice()
    parallelism: tuple[str, ...] = ()
    ddp: DdpSettings = DdpSettings()
    fsdp: FsdpSettings = FsdpSettings()
    deepspeed: DeepSpeedSettings = DeepSpeedSettings()
    pipeline: PipelineSettings | None = None
    optimizer: OptimizerSettings = OptimizerSettings()
    parameters: ModelParameters = ModelParameters()
    precision: PrecisionSettings = PrecisionSettings()
    processors: Processors = Processors()
    dataloader: LoaderSettings | None = None
    batch: FirstBatch = FirstBatch()
    batches: tuple[FedBatch, ...] = ()
    fetches: tuple[Fetch, ...] = ()
    sample_indices: tuple[Whole, ...] = ()
    gradient_ready: ReadyGradients = ReadyGradients()
    allocator: AllocatorCounts = AllocatorCounts()
    steps: tuple[StepTimes, ...] = ()
    windows: tuple[TracedWindow, ...] = ()
    gc: tuple[Pause, ...] = ()
    checkpoints: tuple[Pause, ...] = ()
    evaluations: tuple[Pause, ...] = ()
    syncs: tuple[HostWait, ...] = ()
    window_calls: tuple[ScriptCall, ...] = ()
    last_calls: tuple[CallingLine, ...] = ()  # of the job's last collectives, by the line that calls them
    models: tuple[WrappedModel, ...] = ()
    cpu_waits: CpuWaits = CpuWaits()
    communication_environment: dict[str, str] = {}
    nccl: NcclLog = NcclLog()
    versions: dict[str, str | None] = {}
    watchers: tuple[str, ...] = ()  # functions that the interpreter calls as the training runs Python
    replicas: ReplicaState | None = None
    later_replicas: ReplicaState | None = None
    batch_norms: tuple[BatchNorms, ...] = ()
    gradients: tuple[OptimizerGradients, ...] = ()
    left_in_evaluation: LeftInEvaluation | None = None
    sampler_passes: tuple[ShuffledPasses, ...] = ()
    loader_passes: Whole | None = None  # begun by the training, over all its loaders
    dataset_changed: bool | None = None  # by the training process, between two passes over its loader
    fetch_draws: bool | None = None  # random numbers of the training process, drawn while it made its first batches
    applied: tuple[SettingOutcome, ...] = ()
    made: tuple[MadeLine, ...] = ()
    fetching: TimedFetches | None = None
    hardware: HostHardware = HostHardware()

    @property
    def is_captured(self) -> bool:
        """False where there was no sidecar."""
        return self.schema is not None

    @property
    def loader(self) -> LoaderSettings:
        """Settings of the training's DataLoader, empty where none was seen."""
        return self.dataloader or LoaderSettings()

    def with_fetching(self, fetching: TimedFetches) -> Sidecar:
        """A copy with other fetch costs."""
        return replace(self, fetching=fetching)
