"""Variables of a rank's environment that its sidecar keeps."""

import pytest

from ddprof.capture.describe.environment import communication_environment


def test_settings_and_debugging_aids_are_kept_and_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"NCCL_DEBUG": "INFO", "CUDA_LAUNCH_BLOCKING": "1", "AMD_SERIALIZE_KERNEL": "3", "HIP_LAUNCH_BLOCKING": "1"}
    kept["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
    others = {"NCCL_TOKEN": "x", "CUDA_VISIBLE_DEVICES": "0", "MY_KEY": "y"}
    for name, value in {**kept, **others}.items():
        monkeypatch.setenv(name, value)
    known = communication_environment()
    assert kept.items() <= known.items() and not others.keys() & known.keys()
