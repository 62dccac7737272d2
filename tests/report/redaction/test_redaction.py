"""Hundreds of secrets in every field of a run: none is in any output that was redacted, and public names still are."""

import json
from pathlib import Path

import pytest

from ddprof.report.redaction.names import is_public, renamed
from ddprof.report.redaction.prose import hidden
from ddprof.report.redaction.redact import redacted_data
from tests.report.redaction.planting import Secrets, found, plant

OUTPUTS = [
    *(("analyze", "RUN", "--format", form) for form in ("text", "json", "markdown")),
    pytest.param(("analyze", "RUN", "--format", "html"), marks=pytest.mark.slow),  # the file of `ddprof report`
    ("analyze", "RUN", "--strict", "--fail-on", "info"),
    *(("report", "RUN", "-o", f"OUT.{suffix}") for suffix in ("html", "md", "json", "txt")),
    ("report", "RUN", "--against", "OTHER", "-o", "OUT.html"),
    *(("export", "RUN", "-o", f"OUT.{suffix}") for suffix in ("json", "json.gz")),
    *(("export", "RUN", "--to", form, "-o", "OUT") for form in ("csv", "parquet")),
    *(("compare", "OTHER", "RUN", "--format", form) for form in ("text", "json", "markdown", "html")),
    ("compare", "OTHER", "RUN", "--max-regression", "1%", "--allow-different"),
]
PUBLIC = [
    *("aten::mm", "aten::_scaled_dot_product_flash_attention", "c10d::allreduce_", "AddmmBackward0"),
    *("ProfilerStep#17", "triton_poi_fused_add_mul_relu_0", "aten::add_", "gloo:all_reduce", "cudaLaunchKernel"),
    *("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "nccl:all_reduce"),
    *("ampere_sgemm_128x64_tn", "volta_sgemm_32x32_sliced1x4_tn", "Memcpy HtoD (Pinned -> Device)"),
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize2x1x1_k_off_kernel",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, at::detail::Array<char*, 1>>",
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 64, 64>(float*)",
    *("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "Optimizer.step#AdamW.step"),
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad",
]
RENAMED = [
    *((name, name) for name in PUBLIC),
    *((name, "HIDDEN") for name in ("nccl_quagga_allreduce", "ncclQuaggaKernel", "tri_a_b_c_d", "größe")),
    *(("aten::quagga", "aten::HIDDEN"), ("ProfilerStepQuagga#3", "HIDDEN#3")),
    ("void at::native::vectorized_elementwise_kernel<4, quagga::Functor<float>>(int)",
     "void at::native::vectorized_elementwise_kernel<4, HIDDEN::Functor<float>>(int)"),
    ("ampere_sgemm_128x64_quagga", "HIDDEN"),
    ("Optimizer.step#Quagga.step", "Optimizer.step#HIDDEN.step"),
    ("train.py(17): quagga_forward", "train.py(17): HIDDEN"),
]  # fmt: skip


@pytest.fixture(scope="module")
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture(scope="module")
def run(sample, tmp_path_factory: pytest.TempPathFactory, secrets: Secrets) -> Path:
    """A run of three ranks whose loader is late, planted."""
    return plant(Path(sample("late_loader"), "traces"), tmp_path_factory.mktemp("planted"), secrets)


@pytest.fixture(scope="module")
def other(sample, tmp_path_factory: pytest.TempPathFactory, secrets: Secrets) -> Path:
    """Another run, planted with the same secrets and more."""
    return plant(Path(sample("sync"), "traces"), tmp_path_factory.mktemp("other"), secrets)


def test_the_run_is_still_analyzed_and_full_of_secrets(ddprof, run: Path, secrets: Secrets, tmp_path: Path) -> None:
    code, out, _ = ddprof("analyze", str(run), "--format", "json")
    assert code == 0 and json.loads(out)["verdict"]["bound"] != "none" and len(secrets.all) >= 200
    assert ddprof("export", str(run), "-o", str(tmp_path / "x.json.gz"))[0] == 0
    seen = {*found(secrets.all, out.encode()), *found(secrets.all, (tmp_path / "x.json.gz").read_bytes())}
    assert ddprof("report", str(run), "-o", str(tmp_path / "x.html"))[0] == 0
    assert found(secrets.all, (tmp_path / "x.html").read_bytes())
    assert len(seen) >= 50, "without redaction many of them are shown"


@pytest.mark.parametrize("options", OUTPUTS, ids=" ".join)
def test_no_secret_is_in_an_output(ddprof, run: Path, other: Path, secrets: Secrets, tmp_path: Path, options) -> None:
    places = {"RUN": str(run), "OTHER": str(other)}
    stated = [places.get(word, word.replace("OUT", str(tmp_path / "out"))) for word in options]
    code, out, err = ddprof(*stated, "--redact")
    assert code in (0, 3, 4), err
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    told = {"stdout": out.encode(), "stderr": err.encode(), **{f.name: _content(f) for f in written}}
    for name, content in told.items():
        assert found(secrets.all, content) == [], name
    assert out or written or code == 4


def _content(file: Path) -> bytes:
    if file.suffix != ".parquet":
        return file.read_bytes()
    parquet = pytest.importorskip("pyarrow.parquet")
    return json.dumps(parquet.read_table(file).to_pydict(), ensure_ascii=False, default=str).encode()


@pytest.mark.parametrize(("name", "shown"), RENAMED)
def test_public_names_survive_and_those_that_begin_like_them_are_hidden(name: str, shown: str) -> None:
    assert renamed(name, lambda _: "HIDDEN") == shown


def test_sentences_of_ours_survive_and_what_looks_like_a_number_of_its_own_is_no_public_name() -> None:
    for text in (
        "The loader of rank 2 is late in 4 of 4 steps: 14.8 ms of each 32.3 ms step (46 %)",
        "All-reduce moves 100 MiB per step at 12.5 GB/s; buckets of 25 MiB",
        "num_workers: 0 -> 4 (the loader of rank 2 cannot keep up)",
        "ranks 0-3, step 7; 2x, ±3 µs",
    ):
        assert hidden(text, lambda _: "HIDDEN") == text
    for word in ("7f3a9c1e", "550e8400", "s3cr3t", "deadbeef", "x17y4z2", "kernelQuagga", "a1b2c3d4"):
        assert not is_public(word), word
        assert hidden(f"the loader of {word} is late", lambda _: "HIDDEN") == "the loader of HIDDEN is late"


@pytest.mark.parametrize("part", ["a", "a.", "a/", "1.", "a@", "aB", "_", "-", "é", "a-×"])
def test_a_name_of_any_length_is_read_once(part: str) -> None:
    """A look back at each of its signs would take minutes, and no fast test may."""
    assert redacted_data(part * 50_000, b"key") is not None and renamed(part * 50_000, lambda _: "HIDDEN") is not None
