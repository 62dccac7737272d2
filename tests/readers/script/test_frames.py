"""Files of frames as Kineto and a running process write them: whose code it is."""

from __future__ import annotations

import pytest

from ddprof.readers.script.frames import Frame, frame_of, is_library, is_library_at
from ddprof.tables import NULL


def test_a_frame_has_file_line_and_function() -> None:
    assert frame_of("project/train.py(88): evaluate") == Frame("project/train.py", 88, "evaluate", True)
    assert frame_of("odd (1)/a.py(7): <module>") == Frame("odd (1)/a.py", 7, "<module>", True)


def test_what_is_not_written_in_python_has_no_line_and_no_address() -> None:
    expected = Frame("", NULL, "<built-in method append of list object>", False)
    assert frame_of("<built-in method append of list object at 0x7cc1201ee000>") == expected


@pytest.mark.parametrize(
    "file",
    [
        "torch/nn/modules/module.py",
        "threading.py",
        "PIL/Image.py",
        "/opt/conda/lib/python3.11/site-packages/unheard_of/core.py",
        "/usr/lib/python3.12/json/decoder.py",
        "C:\\venv\\Lib\\site-packages\\unheard_of\\core.py",
        "/usr/local/bin/torchrun",
        "<frozen runpy>",
        "<string>",
        "datasets/iterable_dataset.py",
    ],
)
def test_libraries_launchers_and_python_itself(file: str) -> None:
    assert is_library(file)


@pytest.mark.parametrize(
    "file",
    [
        "train.py",
        "src/torch_utils.py",
        "/home/me/job/data.py",
        "my_transformers/model.py",
        "datasets/coco.py",
        "profile.py",
    ],
)
def test_the_users_own(file: str) -> None:
    assert not is_library(file)


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/usr/lib/python3.12/sched.py", "sched.py"),
        ("/home/me/src/transformers/trainer.py", "transformers/trainer.py"),
        ("<frozen runpy>", "<frozen runpy>"),
    ],
)
def test_a_library_by_where_it_lies_or_by_its_name(file: str, short: str) -> None:
    assert is_library_at(file, short)


@pytest.mark.parametrize("short", ["sched.py", "queue/worker.py", "train.py"])
def test_a_script_that_has_the_name_of_a_standard_module_is_the_users(short: str) -> None:
    assert not is_library_at(f"/home/me/job/{short}", short)
