"""Redacted outputs hold no name of the site, hundreds of them planted in every field of a run, and say the same."""

import dataclasses
import json
import runpy
from pathlib import Path

import pytest

from ddprof.findings import Evidence
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import to_contract
from ddprof.report.model import ClockInfo, HealthItem, HostClockInfo, Report
from ddprof.report.redaction.names import is_public, renamed
from ddprof.report.redaction.prose import hidden
from ddprof.report.redaction.redact import Redaction, redacted, redacted_data, redaction_key
from tests.report.redaction.planting import Secrets, found, plant

KEY = b"a key of the tests"
SECRETS = ("node-a", "node-b", "mnist", "rank0.json", "secret_kernel", "/home/alice", "train_gpt9", "10.1.2.3")
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


@pytest.fixture
def private_report(straggler_report: Report) -> Report:
    summary = "node-b reads /home/alice/project/train_gpt9.py slowly: 3/4 steps, 12 GB/s"
    evidence = (Evidence("secret_kernel(float*) ran on node-b", 2, 0.0, 1.0, "secret_kernel(float*)"),)
    finding = dataclasses.replace(straggler_report.findings[1], summary=summary, evidence=evidence)
    note = HealthItem("runs/mnist/rank0.json.gz is cut off (host 10.1.2.3)", "ask alice@corp.com about shard/zeta.bin")
    verdict = dataclasses.replace(straggler_report.verdict, headline="node-b is late (train_gpt9.py)")
    return dataclasses.replace(straggler_report, findings=(finding,), health=(note,), verdict=verdict)


def test_no_secret_is_left_numbers_stay_and_a_name_has_one_hash_everywhere(private_report: Report) -> None:
    hidden = redacted(private_report, b"key")
    for text in (json.dumps(to_contract(hidden)), render_summary(hidden)):
        assert [secret for secret in (*SECRETS, "alice@corp.com", "shard/zeta") if secret in text] == []
    before, after = to_contract(private_report), to_contract(hidden)
    for section in ("steps", "ledger", "efficiency", "replay"):
        assert after[section] == before[section]
    assert after["verdict"]["bound"] == before["verdict"]["bound"]
    for old, new in zip(before["findings"], after["findings"], strict=True):
        for key in ("id", "severity", "ranks", "lost_us", "recoverable_us", "predicted_step_us", "confidence"):
            assert new[key] == old[key]
    assert "3/4 steps, 12 GB/s" in after["findings"][0]["summary"]
    assert hidden.run.hosts[0] == hidden.run.hosts[1] != hidden.run.hosts[2]
    assert hidden.run.hosts[2] in hidden.findings[0].summary and hidden.run.hosts[2] in hidden.clock.hosts
    redaction = Redaction(private_report, b"key")
    assert redaction.text(redaction.report().run.hosts[2]) == hidden.run.hosts[2]  # what is hidden stays as it is
    assert redacted(private_report, b"key") == hidden
    assert redacted(private_report, b"other").run.hosts != hidden.run.hosts


def test_the_key_is_random_and_settings_are_hashed(monkeypatch: pytest.MonkeyPatch, straggler_report: Report) -> None:
    monkeypatch.delenv("DDPROF_REDACT_KEY", raising=False)
    assert redaction_key() != redaction_key()
    monkeypatch.setenv("DDPROF_REDACT_KEY", "k")
    assert redaction_key() == b"k"
    setting = Redaction(straggler_report, KEY).setting
    assert [*map(setting, plain := ["True", "None", "4", "0.5", "torch.utils.data.DataLoader"])] == plain
    assert setting("AcmeClickLogs").startswith("setting-") and setting("AcmeClickLogs") == setting("AcmeClickLogs")


def test_public_names_and_ranks_stay_and_a_short_host_is_hashed_too(straggler_report: Report) -> None:
    evidence = (Evidence("aten::mm", 0, 0.0, 1.0, "aten::mm"),)
    finding = dataclasses.replace(straggler_report.findings[1], evidence=evidence)
    hidden = redacted(dataclasses.replace(straggler_report, findings=(finding,)), b"key")
    assert hidden.findings[0].evidence == finding.evidence
    run = dataclasses.replace(straggler_report.run, hosts=dict.fromkeys(straggler_report.run.ranks, "vm"))
    redaction = Redaction(dataclasses.replace(straggler_report, run=run), KEY)
    assert redaction.text("vm").startswith("host-")
    assert redaction.text("a vm is a host") == "a name-" + redaction.text("a vm is a host")[7:15] + " is a host"
    clock = ClockInfo({"rank 2": HostClockInfo(0.0, 0.0, 1.0)}, "collective ends")
    redaction = Redaction(dataclasses.replace(straggler_report, clock=clock), KEY)
    assert redaction.text("the loader of rank 2 is late") == "the loader of rank 2 is late"
    assert redaction.report().clock.hosts.keys() == {"rank 2"}


def test_lines_of_the_script_are_hidden_even_where_their_words_are_public(private_report: Report) -> None:
    line = "train.py:88 evaluate()"
    summary = f"rank 0 alone runs {line}, in jobs/secret/loop.py:7 <module>, at a ratio of 3:4"
    evidence = (Evidence(f"longest: {line} took 3 ms", 0, 0.0, 1.0, line),)
    finding = dataclasses.replace(private_report.findings[0], summary=summary, evidence=evidence)
    hidden = redacted(dataclasses.replace(private_report, findings=(finding,)), KEY)
    text, (told,) = json.dumps(to_contract(hidden)["findings"]), hidden.findings
    assert [word for word in ("train.py", "evaluate", "secret", "loop") if word in text] == []
    assert ":88 function-" in told.summary and ":7 <module>, at a ratio of 3:4" in told.summary
    assert told.evidence[0].event in told.evidence[0].text


def test_the_list_of_words_that_stay_is_that_of_the_sources(repo_root: Path) -> None:
    script = runpy.run_path(str(repo_root / ".ci" / "prose_words.py"))
    assert script["LIST"].read_text(encoding="utf-8").splitlines() == script["words"](), "python .ci/prose_words.py"
