"""What vendors and library versions call things: kernels, runtime calls, copies, device properties."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.oracle.spec import Scenario

_NATIVE = "void at::native::"
_ANON = "void at::native::(anonymous namespace)::"
_SM90 = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize128x128x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas"
_FLASH = (
    "void pytorch_flash::flash_{}_kernel<pytorch_flash::Flash_{}_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t> >(pytorch_flash::Flash_{}_params)"
)
_ADD = (
    _NATIVE + "vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul> >"
    "(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"
)
_GELU = (
    _NATIVE + "vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
    "at::native::GeluType)::{lambda()#2}, std::array<char*, 2ul> >(int, {lambda()#2}, std::array<char*, 2ul>)"
)

NVIDIA = {
    "norm": _ANON + "vectorized_layer_norm_kernel<c10::BFloat16, float>(int, float, c10::BFloat16 const*, c10::BFloat16 const*, "
    "c10::BFloat16 const*, float*, float*, c10::BFloat16*)",
    "norm_grad": _ANON + "layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float, c10::BFloat16>(c10::BFloat16 const*, "
    "c10::BFloat16 const*, float const*, float const*, c10::BFloat16 const*, c10::BFloat16*, int)",
    "gemm": _SM90.format("tn"),
    "gemm_wide": "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "gemm_grad": _SM90.format("nt"),
    "attention": _FLASH.format("fwd", "fwd", "fwd"),
    "attention_grad": _FLASH.format("bwd_dq_dk_dv_loop_seqk_parallel", "bwd", "bwd"),
    "add": _ADD,
    "activation": _GELU,
    "softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, float const*, int, "
    "int, int, bool const*, int, bool)",
    "embedding": _ANON + "embedding_backward_feature_kernel<c10::BFloat16, float, long>(long const*, c10::BFloat16 const*, "
    "c10::BFloat16*, int, long, int)",
    "conv": "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel_cudnn",
    "conv_grad": "sm90_xmma_dgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel_cudnn",
    "conv_weight": "sm90_xmma_wgrad_implicit_gemm_indexed_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_kernel_cudnn",
    "adam": _ANON + "multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, "
    "at::native::(anonymous namespace)::FusedAdamMathFunctor<c10::BFloat16, 4, (at::native::ADAM_MODE)1, false>, float const*>",
    "foreach": _ANON + "multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<2>, "
    "at::native::(anonymous namespace)::BinaryOpScalarFunctor<c10::BFloat16, 2, 1, 1>, std::multiplies<float>, float>",
    "elementwise": _NATIVE + "vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<c10::BFloat16, c10::BFloat16, "
    "c10::BFloat16, at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >",
}  # fmt: skip
FP32_GEMMS = {
    "gemm": "ampere_sgemm_128x64_tn",
    "gemm_wide": "ampere_sgemm_128x128_tn",
    "gemm_grad": "ampere_sgemm_128x64_nt",
    "conv": "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>",
    "conv_grad": "void cudnn::cnn::dgrad2d_alg1_1<float, 0, 7, 6, 3, 3, 5, false, true>",
    "conv_weight": "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>",
}
_TENSILE = "Cijk_{}_{}_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{}_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_EPS0"
AMD_GEMMS = {
    "gemm": _TENSILE.format("Alik", "Bljk", "256x128x64"),
    "gemm_wide": _TENSILE.format("Alik", "Bljk", "256x256x64"),
    "gemm_grad": _TENSILE.format("Ailk", "Bljk", "128x128x64"),
    "attention": "attn_fwd",
    "attention_grad": "bwd_kernel_dk_dv",
    "conv": "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1",
    "conv_grad": "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex0_bt256x128x32_wt32x32x8_ws1x1_wr2x2",
    "conv_weight": "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8_ws1x1_wr2x2_gkgs",
}
NCCL_NEW = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "sendrecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
NCCL_OLD = {
    "allreduce": "ncclKernel_AllReduce_RING_LL_Sum_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
    "_allgather_base": "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "_reduce_scatter_base": "ncclKernel_ReduceScatter_RING_LL_Sum_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
    "sendrecv": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
}
RCCL = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
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
}
CALLBACK_IDS = {
    "cudaLaunchKernel": 211, "cudaLaunchKernelExC": 430, "cudaMemcpyAsync": 41, "cudaStreamSynchronize": 131,
    "cudaDeviceSynchronize": 165, "cudaEventRecord": 135, "cudaStreamWaitEvent": 147, "cudaMalloc": 20, "cudaFree": 22,
}  # fmt: skip
MATMUL_ROLES = frozenset(AMD_GEMMS) | frozenset(FP32_GEMMS)


@dataclass(frozen=True)
class Names:
    """Names for one scenario."""

    vendor: str
    precision: str
    comm: str

    def kernel(self, key: str) -> str:
        """Kernel name for "role/variant"."""
        role = key.split("/")[0]
        if self.vendor == "amd":
            return AMD_GEMMS.get(role) or NVIDIA[role]
        if self.precision == "fp32" and role in FP32_GEMMS:
            return FP32_GEMMS[role]
        return NVIDIA[role]

    def collective(self, kind: str) -> str:
        """Name of a communication kernel."""
        if self.vendor == "amd":
            return RCCL
        return (NCCL_OLD if self.comm == "old" else NCCL_NEW)[kind]

    def call(self, key: str) -> str:
        """Runtime call for a key of `Rank.runtime` ("launch:<kernel key>", "memcpy", or a CUDA name)."""
        if key.startswith("launch:"):
            role = key[7:].split("/")[0]
            cuda = "cudaLaunchKernelExC" if role in MATMUL_ROLES or role == "nccl" else "cudaLaunchKernel"
        else:
            cuda = "cudaMemcpyAsync" if key == "memcpy" else key
        if self.vendor != "amd":
            return cuda
        return "hipExtLaunchKernel" if key == "launch:nccl" else HIP_CALLS[cuda]

    def copy(self, name: str) -> str:
        """Name of a copy: ROCm does not say what kind of host memory it was."""
        return name.replace("Pinned", "Host").replace("Pageable", "Host") if self.vendor == "amd" else name


def names_for(scenario: Scenario, precision: str) -> Names:
    """The names a scenario's files use."""
    return Names(scenario.cluster.vendor, precision, scenario.format.names)
