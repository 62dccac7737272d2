"""Kernel names as profilers show them, by role and device generation (taken from public traces)."""

from __future__ import annotations

_NATIVE = "void at::native::"
_ANON = "void at::native::(anonymous namespace)::"
_BF16 = "c10::BFloat16"
_BF16_IN = "c10::BFloat16 const*"
_FLASH = (
    "void pytorch_flash::flash_{0}_kernel<pytorch_flash::Flash_{1}_kernel_traits<128, 128, 64, 4, false, false, "
    "cutlass::bfloat16_t> >(pytorch_flash::Flash_{1}_params)"
)
_POINTWISE = _NATIVE + "vectorized_elementwise_kernel<4, {}, std::array<char*, {}ul> >"
_MULTI = _ANON + "multi_tensor_apply_kernel<at::native::(anonymous namespace)::{}>"

COMMON = {
    "norm": f"{_ANON}vectorized_layer_norm_kernel<{_BF16}, float>(int, float, {_BF16_IN}, {_BF16_IN}, {_BF16_IN}, "
    f"float*, float*, {_BF16}*)",
    "norm_grad": f"{_ANON}layer_norm_grad_input_kernel_vectorized<{_BF16}, float, {_BF16}>({_BF16_IN}, {_BF16_IN}, "
    f"float const*, float const*, {_BF16_IN}, {_BF16}*, int)",
    "attention": _FLASH.format("fwd", "fwd"),
    "attention_grad": _FLASH.format("bwd_dq_dk_dv_loop_seqk_parallel", "bwd"),
    "add": _POINTWISE.format(f"at::native::CUDAFunctor_add<{_BF16}>", 3),
    "activation": _POINTWISE.format("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda()#2}", 2),
    "softmax": "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>"
    "(float*, float const*, int, int, int, bool const*, int, bool)",
    "lookup": "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float, c10::Half, long, 128>",
    "embedding": f"{_ANON}embedding_backward_feature_kernel<{_BF16}, float, long>(long const*, {_BF16_IN}, {_BF16}*, "
    "int, long, int)",
    "adam": _MULTI.format(
        "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>"
    ),
    "foreach": _MULTI.format(
        "TensorListMetadata<2>, at::native::(anonymous namespace)::BinaryOpScalarFunctor<float, 2, 1, 1>"
    ),
    "elementwise": _POINTWISE.format("at::native::AUnaryFunctor<float, float, float, MulFunctor<float> >", 2),
}
_SM90 = "sm90_xmma_{}_bf16bf16_bf16f32_f32_{}tilesize128x128x64_"
H100 = {
    "gemm": _SM90.format("gemm", "tn_n_") + "warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas",
    "gemm_wide": "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT",
    "gemm_grad": _SM90.format("gemm", "nt_n_") + "warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas",
    "conv": _SM90.format("fprop_implicit_gemm", "nhwckrsc_nhwc_") + "kernel_cudnn",
    "conv_grad": _SM90.format("dgrad_implicit_gemm_indexed", "nhwckrsc_nhwc_") + "kernel_cudnn",
    "conv_weight": _SM90.format("wgrad_implicit_gemm_indexed", "nhwckrsc_nhwc_") + "kernel_cudnn",
}
_SM80 = (
    "sm80_xmma_{}_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1"
    "_g1_tensor16x8x16_kernel_cudnn"
)
A100 = {
    "gemm": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
    "gemm_wide": "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn",
    "gemm_grad": "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nt",
    "conv": _SM80.format("fprop_implicit_gemm"),
    "conv_grad": _SM80.format("dgrad_implicit_gemm_indexed"),
    "conv_weight": _SM80.format("wgrad_implicit_gemm_indexed"),
}
V100 = {
    "gemm": "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_tn",
    "gemm_wide": "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_tn",
    "gemm_grad": "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nt",
    "conv": "volta_fp16_s884cudnn_fp16_256x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
    "conv_grad": "volta_fp16_s884cudnn_fp16_256x128_ldg8_dgrad_f2f_exp_small_nhwc_tt_v1",
    "conv_weight": "volta_fp16_s884cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt",
}
FP32 = {
    "gemm": "ampere_sgemm_128x64_tn",
    "gemm_wide": "ampere_sgemm_128x128_tn",
    "gemm_grad": "ampere_sgemm_128x64_nt",
    "conv": "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>",
    "conv_grad": "void cudnn::cnn::dgrad2d_alg1_1<float, 0, 7, 6, 3, 3, 5, false, true>",
    "conv_weight": "void cudnn::cnn::wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>",
}
_TENSILE = "Cijk_{}_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT{}_MI16x16x1_SN_LDSB0_AFC1_AFEM1_AFEM1_ASEM1_CLR1_CADS0_EPS0"
AMD = {
    "gemm": _TENSILE.format("Alik", "256x128x64"),
    "gemm_wide": _TENSILE.format("Alik", "256x256x64"),
    "gemm_grad": _TENSILE.format("Ailk", "128x128x64"),
    "attention": "attn_fwd",
    "attention_grad": "bwd_kernel_dk_dv",
    "conv": "miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f2x3_stride1",
    "conv_grad": "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex0_bt256x128x32_wt32x32x8_ws1x1_wr2x2",
    "conv_weight": "igemm_wrw_gtcx3_nhwc_bf16_bx0_ex1_bt256x128x32_wt32x32x8_ws1x1_wr2x2_gkgs",
}
AMD_FP32 = {
    **{role: name.replace("_BBS_BH_", "_SB_") for role, name in AMD.items() if role.startswith("gemm")},
    "conv": "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1",
    "conv_grad": "igemm_bwd_gtcx3_nhwc_fp32_bx0_ex0_bt128x128x16_wt32x32x2_ws1x1_wr2x2",
    "conv_weight": "igemm_wrw_gtcx3_nhwc_fp32_bx0_ex1_bt128x128x16_wt32x32x2_ws1x1_wr2x2_gkgs",
}
HALF_PRECISION = {"h100": H100, "a100": A100, "v100": V100, "mi300x": AMD, "mi250": AMD}
MATMUL_ROLES = frozenset(H100) | frozenset(AMD)

NCCL_NEW = {
    "allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "all_to_allv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "sendrecv": "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)",
}
NCCL_OLD = {
    "allreduce": "ncclKernel_AllReduce_RING_LL_Sum_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
    "_allgather_base": "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "_reduce_scatter_base": "ncclKernel_ReduceScatter_RING_LL_Sum_bfloat16(ncclDevComm*, unsigned long, ncclWork*)",
    "all_to_allv": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "broadcast": "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
    "sendrecv": "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
}
RCCL = "ncclDevKernel_Generic(ncclDevComm*, channelMasks, ncclWork*)"
