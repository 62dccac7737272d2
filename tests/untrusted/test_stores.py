"""Drivers of stores: user settings stay, and an unresponsive store is reported soon."""

from pathlib import Path

import fsspec
import pytest

from ddprof.untrusted.stores import ATTEMPTS, CONNECT_S, driver_options

URL = "s3://bucket/run"


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The user's `~/.aws/config`, which is not there yet."""
    pytest.importorskip("botocore")
    for variable in ("AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE", "AWS_PROFILE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return tmp_path / "config"


def test_without_settings_a_store_is_asked_as_often_as_the_standard_mode_does() -> None:
    retries = {"mode": "standard", "total_max_attempts": ATTEMPTS}
    assert driver_options(URL) == {"config_kwargs": {"connect_timeout": CONNECT_S, "retries": retries}}


@pytest.mark.parametrize("stated", ["AWS_MAX_ATTEMPTS=7", "AWS_RETRY_MODE=adaptive", ""])
def test_what_a_variable_or_the_config_file_says_of_retries_stays(monkeypatch, settings: Path, stated: str) -> None:
    if stated:
        monkeypatch.setenv(*stated.split("="))
    else:
        settings.write_text("[default]\nmax_attempts = 9\n")
    assert driver_options(URL) == {"config_kwargs": {"connect_timeout": CONNECT_S}}


def test_what_fsspec_is_configured_with_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"connect_timeout": 60, "signature_version": "s3v4"}
    monkeypatch.setitem(fsspec.config.conf, "s3", {"config_kwargs": own})
    assert {**driver_options(URL)["config_kwargs"], **own} == driver_options(URL)["config_kwargs"]


@pytest.mark.parametrize("url", ["gs://bucket/run", "memory://run", "file:///run", "/run"])
def test_other_drivers_are_made_as_they_are(url: str) -> None:
    assert driver_options(url) == {}
