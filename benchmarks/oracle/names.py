"""Names of kernels, runtime calls and copies by vendor and library version."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.oracle.compiled import TRITON
from benchmarks.oracle.kernel_names import (
    AMD_FP32,
    COMMON,
    FP32,
    HALF_PRECISION,
    MATMUL_ROLES,
    NCCL_NEW,
    NCCL_OLD,
    RCCL,
)
from benchmarks.oracle.spec import Scenario

HIP_CALLS = {
    "cudaLaunchKernel": "hipLaunchKernel",
    "cudaLaunchKernelExC": "hipExtModuleLaunchKernel",
    "cudaMemcpyAsync": "hipMemcpyWithStream",
    "cudaStreamSynchronize": "hipStreamSynchronize",
    "cudaDeviceSynchronize": "hipDeviceSynchronize",
    "cudaEventRecord": "hipEventRecord",
    "cudaStreamWaitEvent": "hipStreamWaitEvent",
    "cudaMalloc": "hipMalloc",
    "cudaFree": "hipFree",
    "cudaGraphLaunch": "hipGraphLaunch",
}
CALLBACK_IDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165, "cudaEventRecord": 135, "cudaStreamWaitEvent": 147, "cudaMalloc": 20, "cudaFree": 22,
    "cudaGraphLaunch": 311, "cuLaunchKernel": 307,
}  # fmt: skip


@dataclass(frozen=True)
class Names:
    """Names for one scenario. `comm` is "new" or "old" (before NCCL 2.19)."""

    vendor: str
    device: str
    precision: str
    comm: str
    compiled: bool = False

    def kernel(self, key: str) -> str:
        """Kernel name for "role/variant"."""
        role = key.split("/")[0]
        if self.compiled and role in TRITON:
            return TRITON[role]
        if self.precision == "fp32":
            single = AMD_FP32 if self.vendor == "amd" else FP32
            if role in single:
                return single[role].replace("ampere", "volta") if self.device == "v100" else single[role]
        return HALF_PRECISION[self.device].get(role) or COMMON[role]

    def collective(self, kind: str) -> str:
        """Name of a communication kernel."""
        if self.vendor == "amd":
            return RCCL
        return (NCCL_OLD if self.comm == "old" else NCCL_NEW)[kind]

    def call(self, key: str) -> str:
        """Runtime call for a key of `Rank.runtime` ("launch:<kernel key>", "memcpy", or a CUDA name)."""
        if key.startswith("launch:"):
            role = key[7:].split("/")[0]
            if self.compiled and role in TRITON:
                return "hipModuleLaunchKernel" if self.vendor == "amd" else "cuLaunchKernel"
            extended = self.device == "h100" and (role in MATMUL_ROLES or role == "nccl")
            extended |= self.vendor == "amd" and role in MATMUL_ROLES
            cuda = "cudaLaunchKernelExC" if extended else "cudaLaunchKernel"
        else:
            cuda = "cudaMemcpyAsync" if key == "memcpy" else key
        if self.vendor != "amd":
            return cuda
        return "hipExtLaunchKernel" if key == "launch:nccl" else HIP_CALLS[cuda]

    def copy(self, name: str) -> str:
        """Name of a copy: ROCm does not say what kind of host memory it was."""
        return name.replace("Pinned", "Host").replace("Pageable", "Host") if self.vendor == "amd" else name


def names_for(scenario: Scenario, precision: str, compiled: bool = False) -> Names:
    """The names a scenario's files use."""
    cluster = scenario.cluster
    return Names(cluster.vendor, cluster.device, precision, scenario.format.names, compiled)
