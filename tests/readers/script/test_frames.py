"""Files of frames as Kineto and a running process write them: whose code it is."""

import pytest

from ddprof.readers.script.frames import Frame, frame_of, is_library, is_library_at
from ddprof.tables import NULL


def test_a_frame_has_file_line_and_function() -> None:
    assert frame_of("project/train.py(88): evaluate") == Frame("project/train.py", 88, "evaluate", True)
    assert frame_of("odd (1)/a.py(7): <module>") == Frame("odd (1)/a.py", 7, "<module>", True)
    # What is not written in Python has no line, and no address.
    expected = Frame("", NULL, "<built-in method append of list object>", False)
    assert frame_of("<built-in method append of list object at 0x7cc1201ee000>") == expected


LIBRARIES = ("torch/nn/modules/module.py", "threading.py", "PIL/Image.py", "/usr/lib/python3.12/json/decoder.py")
LIBRARIES += ("/opt/conda/lib/python3.11/site-packages/unheard_of/core.py", "datasets/iterable_dataset.py")
LIBRARIES += ("C:\\venv\\Lib\\site-packages\\unheard_of\\core.py", "/usr/local/bin/torchrun")
LIBRARIES += ("<frozen runpy>", "<string>", f"/tmp/torchinductor_me/ov/cov{'a' * 49}.py", f"/cache/z7/cz7{'b' * 49}.py")
OWN = ("train.py", "src/torch_utils.py", "/home/me/job/data.py", "my_transformers/model.py", "datasets/coco.py")


@pytest.mark.parametrize("file", [*LIBRARIES, *OWN, "ab/cab.py", "profile.py"])
def test_libraries_launchers_and_python_itself_are_not_the_users(file: str) -> None:
    assert is_library(file) == (file in LIBRARIES)


@pytest.mark.parametrize(
    ("file", "short", "expected"),
    [
        ("/usr/lib/python3.12/sched.py", "sched.py", True),
        ("/home/me/src/transformers/trainer.py", "transformers/trainer.py", True),
        ("<frozen runpy>", "<frozen runpy>", True),
        *((f"/home/me/job/{short}", short, False) for short in ("sched.py", "queue/worker.py", "train.py")),
    ],
)
def test_a_library_is_told_by_where_it_lies_or_by_its_name(file: str, short: str, expected: bool) -> None:
    assert is_library_at(file, short) == expected
