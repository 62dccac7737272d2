"""Matrix kernels on operands in single precision: TF32 on tensor cores is none."""

from pathlib import Path

import pytest
from kineto_run import Script

from ddprof.analyzers.facts.names import is_gemm


@pytest.mark.parametrize(
    ("kernel", "is_fp32"),
    [
        ("ampere_sgemm_128x64_tn", True),
        ("void cutlass::Kernel<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(Params)", True),
        ("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_cublas", True),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nt_align4>(Params)", False),
        ("ampere_s1688gemm_128x128_ldg8_stages_32x5_tn", False),
        ("sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nchw_kernel_cudnn", False),
        ("nvjet_sss_128x256_32x4_1x2_h_bz_coopA_NTN", False),
    ],
)
def test_single_precision_operands_on_tensor_cores_are_tf32(tmp_path: Path, kernel: str, is_fp32: bool) -> None:
    script = Script()
    for _ in script.steps(2):
        script.launch(kernel, dur_us=50.0, op="aten::mm")
        operator = next(e for e in reversed(script.events) if e["name"] == "aten::mm")
        operator["args"] |= {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
    groups = script.facts(tmp_path).kernel_groups
    assert groups["is_gemm"].all() and groups["is_fp32"].astype(bool).tolist() == [is_fp32] * len(groups)


@pytest.mark.parametrize(
    ("kernel", "is_product"),
    [
        ("triton_poi_fused_convolution_relu_6", False),
        ("triton_red_fused_convolution_backward_native_batch_norm_backward_3", False),
        ("triton_tem_fused_convolution_12", True),
        (
            "void at::native::vectorized_elementwise_kernel<4, at::native::lgamma_kernel_cuda(at::TensorIterator&)>",
            False,
        ),
        ("void cudnn::ops::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(float)", False),
        ("void implicit_convolve_sgemm<float, float, 512, 6, 8, 3, 3, 5, 1, false, true, true>(int)", True),
        ("sm80_wmma_kernel_mma_16816", True),
    ],
)
def test_kernels_named_after_what_they_follow_are_no_matrix_products(kernel: str, is_product: bool) -> None:
    assert is_gemm([kernel]).tolist() == [is_product]
