"""Redacted outputs hold no name of the site, hundreds of them planted in every field of a run, and say the same."""

import base64
import dataclasses
import gzip
import json
import re
import runpy
import zlib
from collections.abc import Iterator
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ddprof.findings import Evidence
from ddprof.report.html.parts import render_summary
from ddprof.report.json.contract import to_contract
from ddprof.report.model import ClockInfo, HealthItem, HostClockInfo, Report
from ddprof.report.redaction.redact import Redaction, hidden, is_public, redacted, redacted_data, redaction_key, renamed

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

# What a site might call its things; none of these is a word of ddprof's or of a public library's.
STEMS = ("quagga", "Zanzibar", "oryx_falcon", "blueBadger", "kea-lynx", "Übermut", "stoat.heron", "tapir ibis")
FIXED = frozenset({"ph", "cat", "s", "bp", "displayTimeUnit", "backend", "schema", "dtype", "Collective name", "kind"})
PUBLIC_START = re.compile(r"ProfilerStep|enumerate\(|Memcpy|Memset|Optimizer|Iteration|PyTorch|ac2g|DataLoader")


class Secrets:
    """One secret for each (field, value), so that what was equal stays equal: groups still match over the ranks."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], str] = {}

    def of(self, field: str, value: str) -> str:
        number = len(self._of)
        return self._of.setdefault((field, value), f"{STEMS[number % len(STEMS)]}{number:04d}")

    @property
    def all(self) -> list[str]:
        return sorted(self._of.values())

    def planted(self, value: Any, field: str) -> Any:
        """The value with a secret behind every text in it and as a further key of every mapping."""
        if isinstance(value, str):
            # Names begin like public ones: the secret is their template argument, a scope, a further word.
            joint = ("_", "::", "<", " ", "")[len(field + value) % 5]
            return value if field in FIXED else value + joint + self.of(field, value)
        if isinstance(value, list):
            return [self.planted(item, field) for item in value]
        if isinstance(value, dict):
            further = {self.of(field, "key"): self.of(field, "its value")}
            return {key: self.planted(item, key) for key, item in value.items()} | further
        return value


def plant(source: Path, folder: Path, secrets: Secrets) -> Path:
    """A run folder made of the traces of `source`, with a sidecar and further files; every text planted."""
    run = folder / secrets.of("file", "run")
    run.mkdir(parents=True)
    for rank, file in enumerate(sorted(source.glob("*.gz"))):
        stem = f"rank{rank}.{secrets.of('host', 'name').replace('.', '-').replace(' ', '-')}.{100 + rank}.0"
        document = json.loads(gzip.decompress(file.read_bytes()))
        (run / f"{stem}.stacks.jsonl").write_text(_stacks(document, secrets))
        trace = json.dumps(_trace(document, rank, secrets)).encode()
        (run / f"{stem}.0.pt.trace.json.gz").write_bytes(gzip.compress(trace))
        (run / f"{stem}.sidecar.json").write_text(json.dumps(_sidecar(rank, secrets)))
        lines = [{"worker": 0, "pid": 1, "index": n, "start_ns": n, "end_ns": n + 1, "note": "x"} for n in range(3)]
        workers = "".join(json.dumps(secrets.planted(line, "worker")) + "\n" for line in lines)
        (run / f"{stem}.workers.jsonl").write_text(workers)
    told = {"command": "python train.py", "cwd": "/home", "exit_code": 0, "hosts": {"0": "a"}}
    (run / "manifest.json").write_text(json.dumps(secrets.planted({"schema": "ddprof.run/1", **told}, "manifest")))
    (run / f"{secrets.of('file', 'notes')}.json").write_text(json.dumps(secrets.planted({"a": "b"}, "strange")))
    (run / f"{secrets.of('file', 'damaged')}.pt.trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "cut')
    return run


def _stacks(document: dict[str, Any], secrets: Secrets) -> str:
    """Samples of the thread that marks the steps, all through the trace, in functions of names that nobody may see."""
    marks = [event for event in document["traceEvents"] if str(event.get("name")).startswith("ProfilerStep#")]
    files = [f"/{secrets.of('frame', 'folder')}/{secrets.of('frame', 'file')}{n}.py" for n in range(3)]
    frames = [["", "...", 0], *([file, secrets.of("frame", f"function {file}"), 7] for file in files)]
    base_ns = int(document.get("baseTimeNanoseconds", 0))
    start_ns = base_ns + int(1000 * min(float(mark["ts"]) for mark in marks)) if marks else base_ns
    samples = [[n * 10**6, 10**6, 0, 0, 5, 1 + n % 3] for n in range(500)]
    lines = [
        {"kind": "begin", "phases": ["data", "forward", "backward", "optimizer", "collective", "rest"], "path": ["/"]},
        {"kind": "frames", "from": 0, "frames": frames},
        {"kind": "stacks", "from": 0, "stacks": [[-1, 0], [-1, 1], [1, 2], [2, 3]]},
        {"kind": "threads", "from": 0, "threads": [[secrets.of("thread", "name"), marks[0]["tid"] if marks else 1]]},
        {"kind": "counts", "counts": [[stack, 5, 0, 100, 10**8, 10**7] for stack in (1, 2, 3)]},
        {"kind": "samples", "at_ns": start_ns, "period_ns": 10**6, "samples": samples},
    ]
    return "".join(json.dumps(line) + "\n" for line in lines)


def _trace(document: dict[str, Any], rank: int, secrets: Secrets) -> dict[str, Any]:
    """Every name but those that mark steps and batches; of operators and kernels every third stays public."""
    events = document.pop("traceEvents")
    for number, event in enumerate(events):
        name = event.get("name", "")
        if not PUBLIC_START.match(name) and number % 3:
            event["name"] = secrets.planted(name, f"{event.get('cat')} of {rank}") + (">" if number % 2 else "")
        if "args" in event:
            event["args"] = secrets.planted(event["args"], "args")
    return {**secrets.planted(document, "header"), "traceEvents": events}


def _sidecar(rank: int, secrets: Secrets) -> dict[str, Any]:
    document = {
        **{"rank": rank, "world_size": 3, "host": "node", "parallelism": ["ddp"], "errors": ["could not open file"]},
        "device": {"name": "NVIDIA H100", "uuid": "GPU-1", "pci_address": "0000:01"},
        "process_groups": [{"name": "0", "desc": "default_pg", "ranks": [0, 1, 2]}],
        "optimizer": {"class": "AdamW", "fused": False, "foreach": True},
        "parameters": {"count": 1000, "dtype": "float32"},
        "precision": {"float32_matmul_precision": "highest"},
        "dataloader": {"num_workers": 0, "dataset": "Folder", "sampler": {"class": "RandomSampler"}},
        "communication_environment": {"NCCL_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"},
        "syncs": [{"start_ns": 1, "end_ns": 2, "where": "train.py:17", "what": "item"}],
        "nccl": {"transports": ["SHM"], "lines": ["NET/IB : Using mlx5_0"]},
        "versions": {"torch": "2.9", "python": "3.11"},
    }
    return {"schema": "ddprof.run/1", "state": "exit", **secrets.planted(document, "sidecar")}


def found(secrets: list[str], output: bytes) -> list[str]:
    """Secrets that are in an output: as they are, in lower case, escaped, or inside what is packed in it."""
    text = "\0".join(part.decode("utf-8", "replace").lower() for part in _unpacked(output))
    stems = {stem for stem in STEMS if any(form in text for form in _forms(stem))}  # most outputs hold none
    return [s for s in secrets if s[:-4] in stems and any(form in text for form in _forms(s))]


def _forms(secret: str) -> set[str]:
    low = secret.lower()
    return {low, json.dumps(low)[1:-1], quote(low).lower(), escape(low), low.replace("-", "_"), low.replace(" ", "+")}


def _unpacked(output: bytes) -> Iterator[bytes]:
    """The output, and what is gzipped, deflated or in base64 inside it."""
    yield output
    if output[:2] == b"\x1f\x8b":
        yield from _unpacked(gzip.decompress(output))
    for match in re.finditer(rb"[A-Za-z0-9+/]{40,}={0,2}", output):
        data = base64.b64decode(match.group() + b"=" * (-len(match.group()) % 4))
        yield data
        for window_bits in (zlib.MAX_WBITS | 16, zlib.MAX_WBITS):  # gzip, deflate
            with suppress(zlib.error):
                yield zlib.decompress(data, window_bits)


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
