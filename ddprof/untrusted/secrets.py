"""Masking of secrets in a job's command, environment or messages; the only place that does it.

Secrets are recognised by a value's name, issuers' prefixes, the place in a URL, and random letters. Others (a short
password standing alone) are not: docs/threat-model.md.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

T = TypeVar("T")

_KEPT_CHARACTERS = 512  # of a text whose masked form is remembered
WORDS_KEY = "argv_base64"  # of a manifest: base64 looks like a generated key, and holds the command
MASK = "MASKED"  # a plain word: it needs no quotes in a shell, and says what to fill in
_KEYS = "api access secret private account auth encryption signing license ssh service storage shared master session "
_KEYS += "app application client subscription webhook redact deploy consumer hmac openai anthropic wandb comet kaggle "
_KEYS += "hf routing write integration instrumentation admin"
# Tokens that a tokenizer calls so (transformers, SPECIAL_TOKENS_ATTRIBUTES), and places and kinds of tokens.
_TEXT_TOKENS = r"(?<!pad.)(?<!eos.)(?<!bos.)(?<!unk.)(?<!sep.)(?<!cls.)(?<!mask.)(?<!image.)(?<!next.)(?<!per.)"
_NAME = (
    r"(?:(?:pass[-_ ]?(?:w(?:or[dt]|d)|phrase)|secret|credential"
    rf"|(?:{'|'.join(_KEYS.split())})[-_ .]?key)(?:s(?:\.\w+)?)?"
    r"|(?:store|key)pass|pass(?:code|key)|pswd|secure_?string|identified\s+by|jwt"
    r"|kennwort|senha|contrase\w{1,2}a|mot[-_ ]?de[-_ ]?passe|пароль|密[码碼]|パスワード|비밀번호"
    r"|sess(?:ion)?_?id|\bpsk\b|(?:db|ssh|ftp|smtp|user|root|admin|bind)[-_]?(?:pass|pwd|pw)\b"
    rf"|authorization|signature|cookie|bearer|dsn|{_TEXT_TOKENS}token"
    r"|connection[-_]?string|access[-_]?key[-_]?id|webhook(?:[-_]url)?"
    r"|(?<![a-z])(?:creds?|(?P<short>pass|pwd|pw|auth|(?-i:(?<=[A-Z0-9]_)KEY|(?<=(?:HUB|LAB|EXT|OPS)_)PAT))))"
)
_INSIDE = r"""[^"'\n\\]*(?:\\(?!["'])[^"'\n\\]*)*"""  # of quotes; \" is a quote inside a text of JSON
_WEB = r"(?:%22|&quot;)"
_PREFIX = "[A-Za-z@$]{0,2}"  # of a quoted text: b"", f"", Rb'', @""
_TYPE = r":\s?[A-Za-z][\w.]{0,40}(?:\[[^\]\n]{1,40}\])?(?:\s?\|\s?\w+)*"  # of any language
_NAMED = re.compile(
    # NAME=VALUE, "NAME": "VALUE", NAME = "VALUE", NAME: str = "VALUE", NAME: | VALUE, <NAME>VALUE</NAME>; --NAME VALUE
    rf"(?P<name>{_NAME}(?:_?\d+)?)(?P<verb>\s(?:provided|given|used|is|to))?"
    rf"(?P<sign>(?:{_TYPE})?\s{{0,8}}=\s{{0,8}}\(?\s{{0,8}}(?={_PREFIX}[\"'])|:\s?[|>][-+]?\s*\n\s*"
    rf"|(?:\\*[\"']|{_WEB})?\]?\s?(?:=>|[!:=]?=|:|<-|%3[AD])(?:\*\*)?\s?{_WEB}?"
    r"|[\"']\s?,[^\n)]{0,80}?\bdefault\s?=\s?"
    r"|>(?=[^<>\s]+</)|</\w+>\s{0,8}<\w+>|[\"']\s{1,8}value="
    rf"|(?P<weak>(?:[\"']\s?,|(?:\s(?:not\s)?in\s)?[({{\[])\s?(?={_PREFIX}[\"'])|(?<=\w)\s+(?=[^\s=:-])|:\s*\n\s+))"
    r"(?P<kind>(?:Bearer|Basic|Token|ApiKey)\s+)?"
    rf"(?:(?P<quote>{_PREFIX}(?:\"{{3}}|\\*\"))[^\"\n\\]*(?:\\(?!\")[^\"\n\\]*)*"
    rf"|(?P<tick>{_PREFIX}(?:'{{3}}|\\*'))(?:{_INSIDE})|[\w.]*[\[(][^\])\n]{{0,400}}"
    r"|(?:[^\s\"'&,;)\]}>\\]|\\(?![\"'])|[,;](?=[^\s\"'=,;]+(?:\s|\Z)))+)",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w.-]{1,200}")  # an option, a variable, a key
_OPTION = re.compile(r"(?:^|[\s\"'.])--?(?:[A-Za-z0-9_.]+-)*[A-Za-z0-9_.]*$")
_HARMLESS = re.compile(r"|none|null|true|false|str|bytes|optional|\$[\w{(].*|<[\w/| ]*>?|\.{3}|masked.*", re.IGNORECASE)
# Up to the last @ of a host's part; a password may hold a slash, and `host:80/x@y` is none.
_USERINFO = re.compile(
    r"(?<=://)(?:[^/\s\"':@\[]*:(?!\d{1,5}/)(?:[^/\s\"'\\]{0,256}|[^@\s\"'\\]{0,256})|[^/\s\"'@?#\\]+)(?=@)"
)
_QUERY = re.compile(
    r"(?<=[?&;])([\w.-]*(?:sig|signature|token|key|keyid|secret|password|pwd|credential|code|sas|auth|jwt|hmac)=)"
    r"[^&\s\"'#;\\]+",
    re.IGNORECASE,
)
# Texts are a key (wandb, huggingface_hub) or a user and a password (requests).
_LOGIN = re.compile(
    r"((?:login|HTTP\w+Auth|\bauth\s?=\s?|SecretStr|set_\w*(?:password|secret|api_key)|authenticate)\()"
    r"(?=[^\"'\n)]*[\"'])[^\n)]*"
)
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/-]{8,}=*", re.IGNORECASE)
# Words of a Cookie header, a .netrc, kaggle.json, `wandb login`, `curl --user`; `1000:1000` is a user and a group.
_PLACED = re.compile(
    r"(\bcookie:\s|\b\w+pass\s+-p[ =]?[\"']?|\blogin\b[^\n|;&]{0,200}?\s-p[ =][\"']?"
    r"|\blogin\s+\S+\s+password\s+(?=\S)|\bpassword\s+(?=\S+\s+login\s)|\blogin\s+(?=[0-9a-f]{32})"
    r"|\"username\":\s?\"[^\"\n]*\",\s?\"key\":\s?\""
    r"|(?<!\S)(?:-u|--(?:proxy-)?user)[ =][^\s:\"']+:(?!\d+(?!\w)|/))(?:(?<=cookie:.)[^\"'\n\\]+|[^\s\"'\\]+)",
    re.IGNORECASE,
)
_LEADS = ("login", "-u", "--user")  # words of a command before such a one
# What issuers begin with, from the patterns that they publish (github/secret-scanning-patterns, gitleaks.toml v8).
_ISSUED = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:AKIA|ASIA|ABIA|ACCA|AGPA|AIDA|AROA)[A-Z0-9]{12,}"
    r"|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|gl(?:pat|dt|rt|cbt|ptt|ft|soat)-[\w-]{16,}"
    r"|hf_[A-Za-z0-9]{16,}|api_org_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|(?:sk|pk|rk)_(?:live|test)_\w{10,}|whsec_\w{16,}"
    r"|xox[abeoprs]-[\w-]{8,}|xapp-[\w-]{8,}|AIza[\w-]{20,}|ya29\.[\w-]{10,}|GOCSPX-[\w-]{16,}|1//0[\w-]{20,}"
    r"|npm_[A-Za-z0-9]{20,}|pypi-[\w-]{16,}|do[opr]_v1_\w{16,}|SG\.[\w-]{10,}\.[\w-]{10,}|shp(?:at|ca|pa|ss)_\w{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?|hv[sbr]\.[\w-]{16,}|dapi[a-f0-9]{24,}|glsa_\w{16,}|lin_api_\w{16,}"
    r"|nvapi-[\w-]{16,}|r8_\w{16,}|gsk_\w{16,}|pplx-\w{16,}|xai-\w{16,}|sntry[su]_[\w=+/-]{16,}|ATATT3[\w=-]{16,}"
    r"|local-[a-f0-9]{32,}|wandb_v1_\w{16,}|dckr_pat_[\w-]{16,}|PMAK-[\w-]{16,}|NRAK-\w{16,}|SK[0-9a-f]{32}"
    r"|key-[0-9a-f]{32}|pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"
    r"|AGE-SECRET-KEY-1\w{16,}|[\w.~]{3}\dQ~[\w.~-]{31,34}|(?:bot)?\d{8,10}:AA[\w-]{30,}|dp\.(?:pt|st|ct|sa)\.\w{16,}"
    r"|lsv2_[ps][tk]_\w{16,}|(?:pcsk|pnu|tgp_v1|jina|glc|ntn|sbp|KGAT|pscale_\w{2,5}|sm_[aps]at)_\w{16,}"
    r"|(?:fw|rpa|secret|rubygems)_[A-Za-z0-9]{16,}|(?:tvly|csk|pul|HRKU|NRII|xkeysib|sq0[ac]tp)-[\w-]{16,}"
    r"|(?:LTAI|AKID|AKLT|ATBB|ATCTT3|ABSK)[A-Za-z0-9+/]{16,}|EAA[A-Za-z0-9]{26,}|(?:fm[12][ar]?|fo1)_[\w+/-]{30,}"
    r"|https://(?:hooks\.[\w.-]+|[\w./-]+/(?:webhook\w*|with/key)|conda[\w.-]+/t)/[\w/@.-]+"
    r")"
)
_PEM = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----[^\"]*?(?:-----END [A-Z ]*-----|(?=\")|\Z)")
_RUN = re.compile(r"(?<![\w+/])[A-Za-z0-9+/_-]{20,}={0,2}(?![\w+/=])")
_LEAST_ISSUED = 12  # characters, of the shortest that `_ISSUED` tells
_LEAST_RANDOM = 20  # characters
_WITH_DIGIT = re.compile(r"(?=\D*\d)\S{8,}")
_LIKELY = re.compile(r"(?=\D*\d)[A-Za-z][\w+/=!#$%^*@~-]{5,}[.:?]?")  # as a word: letters and digits
_PARTS = re.compile(r"[_/=-]")
_CASED = re.compile(r"[a-z]+|[A-Z]+|[0-9]+|[^A-Za-z0-9]+")
_HINTS: tuple[str, ...] = ("pass", "secret", "key", "token", "cred", "auth", "signature", "cookie", "bearer", "basic")
_HINTS += ("dsn", "string", "://", "-----", "?", "&", "webhook", "pwd", "login", "pw", "-u ", "-user")
_HINTS += ("jwt", "pswd", "kennwort", "senha", "contrase", "identified", "sessid", "session", "psk", "_pat")
_HINTS += ("securestring", "secure_string", "парол", "密", "パスワード", "비밀")


def masked(text: str) -> str:
    """The text with every recognised secret replaced by MASKED."""
    return _masked(text) if len(text) <= _KEPT_CHARACTERS else _mask(text)


@lru_cache(maxsize=1 << 13)
def _masked(text: str) -> str:
    return _mask(text)


def _mask(text: str) -> str:
    low = text.lower()
    if any(hint in low for hint in _HINTS):
        text = _PEM.sub(MASK, text)
        text = _USERINFO.sub(MASK, text)
        text = _QUERY.sub(rf"\g<1>{MASK}", text)
        text = _PLACED.sub(rf"\g<1>{MASK}", text)
        text = _NAMED.sub(_named, text)
        text = _LOGIN.sub(rf"\g<1>{MASK}", text)
        text = _SCHEME.sub(rf"\g<1> {MASK}", text)
    if len(text) < _LEAST_ISSUED:
        return text
    text = _ISSUED.sub(MASK, text)
    return _RUN.sub(lambda run: MASK if _is_random(run[0]) or _hides(run[0]) else run[0], text)


def _named(match: re.Match[str]) -> str:
    name, sign = match["name"] + (match["verb"] or ""), match["sign"]
    quote, kind = match["quote"] or match["tick"] or "", match["kind"] or ""
    is_option = _OPTION.search(match.string, max(match.start() - 40, 0), match.start()) is not None
    before = match.string[: match.start()]
    # DB_PASS, PASS=X and X_KEY=X; PWD is a folder
    is_variable = name.isupper() and ((before.endswith("_") and name != "KEY") or (sign == "=" and name != "PWD"))
    value = match[0][len(name) + len(sign) + len(kind) + len(quote) :]
    # invalid token 'abc12345', API key abc123
    is_told = _LIKELY.fullmatch(value) is not None or (bool(quote) and _WITH_DIGIT.fullmatch(value) is not None)
    if not (is_option or is_told) and (match["weak"] is not None or (match["short"] and not is_variable)):
        return match[0]  # two words of a sentence; `forward_pass = f(x)`
    return match[0] if _is_harmless(name, value) else f"{name}{sign}{kind}{quote}{MASK}"


def _is_harmless(name: str, value: str) -> bool:
    is_number = value.replace(".", "").isdigit() and "token" in name.lower()
    is_place = name.endswith(".py") and value.rstrip(":,.").isdigit()  # "secrets.py:205"
    return _HARMLESS.fullmatch(value) is not None or is_number or is_place


def masked_words(words: Iterable[str]) -> list[str]:
    """The words of a command, each masked; after `--password` the next one."""
    shown: list[str] = []
    option, asks = "", False
    for word in words:
        asks |= word == "login" or (word.endswith("pass") and not word.startswith("-"))  # sshpass; its -p is a password
        name, sign, value = word.partition("=")
        if sign and is_secret_name(name):
            shown.append(word if _is_harmless(name, value) else f"{name}={MASK}")
        elif option and not word.startswith("-") and not _is_harmless(option, word):
            shown.append(MASK)
            asks = False
        else:
            before = next(iter(shown[-1:]), "")
            lead = f"{before} " if before in _LEADS or before.endswith("pass") or is_secret_name(before) else ""
            shown.append(masked(lead + word).removeprefix(lead))
        is_option = word.startswith("-") and not sign
        option = word if is_option and (is_secret_name(word) or (asks and word == "-p")) else ""
    return shown


def encoded_words(words: Sequence[str]) -> str:
    """The words of a command as base64 of a JSON list."""
    return base64.b64encode(json.dumps(words).encode()).decode()


def decoded_words(text: str) -> list[str]:
    """The words that `encoded_words` encoded; empty for any other text."""
    try:
        return [str(word) for word in json.loads(base64.b64decode(text, validate=True))]
    except (ValueError, TypeError):
        return []


def masked_data(data: T) -> T:
    """JSON-like data with all text masked and keys kept; values under a secret's name are masked as a whole."""
    result: T = _data(data)
    return result


def _data(data: Any) -> Any:
    if isinstance(data, str):
        return masked(data)
    if isinstance(data, dict):
        return {key: _masked_entry(key, value) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return data if data and isinstance(data[0], (int, float)) else [_data(item) for item in data]
    return data


def _masked_entry(key: Any, value: Any) -> Any:
    if key == WORDS_KEY and isinstance(value, str):
        return encoded_words(masked_words(decoded_words(value)))
    if isinstance(key, str) and isinstance(value, str) and is_secret_name(key) and not _is_harmless(key, value):
        return MASK
    if isinstance(key, str) and isinstance(value, (dict, list)) and key.endswith("s") and is_secret_name(key):
        return _hidden(value)
    return _data(value)


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_hidden(inner) for inner in value]
    return MASK if isinstance(value, str) else value


@lru_cache(maxsize=1 << 10)
def is_secret_name(name: str) -> bool:
    """True for names (of options, variables, keys) of secrets."""
    return _WORD.fullmatch(name) is not None and _NAMED.sub(_named, f"{name}=x") != f"{name}=x"


def _is_random(run: str) -> bool:
    """True where letters and digits look randomly generated.

    Sweep of 2026-11-24 over 40,573 names of kernels, operators, files and Python code: 64 pass, most of them texts of
    other encodings; of random ones of 40 characters 95 % (letters and digits), 90 % (base64), 80 % (base64url) do.
    """
    if "_Z" in run:  # a name that a C++ compiler made
        return False
    return any(len(part) >= _LEAST_RANDOM and _mixes(part) for part in _PARTS.split(run))


def _mixes(part: str) -> bool:
    kinds = [sum(map(test, part)) for test in (str.isdigit, str.isupper, str.islower)]
    cased = _CASED.findall(part)
    longest = max((len(same) for same in cased if same.isalpha()), default=0)
    return min(kinds) >= 2 and longest <= 7 and len(cased) >= 0.45 * len(part)


def _hides(run: str) -> bool:
    """True for base64 of text with a secret in it."""
    padded = run.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        text = base64.b64decode(padded + "=" * (-len(padded) % 4), validate=True).decode()
    except (binascii.Error, ValueError):
        return False
    return text.isprintable() and _mask(text) != text
