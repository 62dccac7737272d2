"""Secrets are masked, and nothing else."""

import json
import time

import pytest
from planted_secrets import KINDS

from ddprof.untrusted.secrets import MASK, WORDS_KEY, decoded_words, encoded_words, masked, masked_data, masked_words


@pytest.mark.parametrize("text", KINDS)
def test_every_kind_is_masked(text: str) -> None:
    part = KINDS[text]
    for told in (masked_words([text])[0], masked(f"x {text} y"), json.dumps(masked_data({"a": [text]}))):
        assert MASK in told and (part not in told or " " in part), told
    assert json.loads(masked(json.dumps({"a": text, "b": 1})))["b"] == 1
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize("text", [
    "--eos_token=</s> --pad-token <pad> --max_token=5 num_tokens=128 tokenizer=gpt2 tokens_per_second: 1.5",
    "the token in the printed address; a secret is out; secret=True; password=None; f'{password}'; key=image",
    "Cijk_SB_GG_BiasS_HAS_ScaleABVec_ScaleAlphaVec_PostGSU4_VW2",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEENS_6detail5ArrayIPcLi1EEEEEviT0_T1_",
    "commit 0123456789abcdef0123456789abcdef01234567 of GPU-0f1a8107-49f7-391c-30ca-111111111111",
    "ddprof-runs/20261124T120000Z-train/rank0.node1.1.0.pt.trace.json.gz", "user@host.example",
    "credentials.py:33 login(), called from secrets.py:205 <module>",
    "OPENAI_API_KEY", "train.py --lr 3e-4 --data /data/imagenet", "token=$HF_TOKEN", "forward_pass = f(x); PWD=/home/u",
    "docker -u 1000:1000; python -u train.py; HF_TOKEN must be set; pw = 3; API key missing; unexpected token 'x'",
])  # fmt: skip
def test_what_is_none_stays(text: str) -> None:
    assert masked(text) == text


def test_the_word_after_an_option_and_the_value_of_a_variable() -> None:
    words = ["--password", "Y", "--lr", "3", "--token", "T", "--eos-token", "</s>", "-u", "1:2", "--api-key", "--next"]
    shown = ["--password", MASK, *words[2:5], MASK, *words[6:], "-u", f"me:{MASK}"]
    assert masked_words([*words, "-u", "me:pw"]) == shown
    data = {"NCCL_X_TOKEN": "T", "n": [1, 2], "key": None, "secrets": {"hf": ["x"], "n": 3}}
    assert masked_data(data) == {**data, "NCCL_X_TOKEN": MASK, "secrets": {"hf": [MASK], "n": 3}}


def test_long_text_takes_time_in_proportion() -> None:
    for part in ("a", "ab1C", "token", "--token ", 'token="', "://a", "secret:", "AKIA", "eyJ", "x=y&"):
        spent = []
        for size in (1 << 14, 1 << 17):
            began = time.process_time()
            masked(part * (size // len(part)))
            spent.append(time.process_time() - began)
        assert spent[1] < 64 * max(spent[0], 0.01), part


def test_the_words_of_a_manifest_stay_readable_but_for_secrets() -> None:
    words = ["torchrun", "train.py", "--until", "/tmp/pytest-of-root/pytest-400/popen-gw0/stopped", "--api-key=abc"]
    kept = masked_data({WORDS_KEY: encoded_words(words)})[WORDS_KEY]
    assert decoded_words(kept) == [*words[:-1], f"--api-key={MASK}"] and decoded_words(MASK) == []
