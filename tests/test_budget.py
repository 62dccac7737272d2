"""A fast test above its CPU budget fails by name; what is shared, slow or cheap does not."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

BURNING = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < 0.5: pass"

def burn():
    end = time.process_time() + 0.5
    while time.process_time() < end:
        pass

@pytest.fixture(scope="session")
def server():
    burn()

@pytest.fixture(scope="module")
def shared(request):
    burn()
    request.getfixturevalue("server")

@pytest.fixture
def alone():
    burn()

def test_cheap(): time.sleep(0.5)
def test_shared(shared): pass
def test_own_time(): burn()
def test_own_fixture(alone): pass
def test_child(): subprocess.run([sys.executable, "-c", BURN], check=True)
def test_child_that_lives_on(request):
    child = subprocess.Popen([sys.executable, "-c", BURN + "\\nprint(flush=True); input()"], stdin=-1, stdout=-1)
    request.addfinalizer(lambda: (child.communicate(), None))
    child.stdout.readline()
@pytest.mark.slow
def test_slow(): burn()
"""


def test_a_test_above_the_budget_fails_by_name(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makeini("[pytest]\nmarkers = slow: minutes")
    pytester.makeconftest(
        "import budget\nbudget.LIMIT_CPU_S, budget.FAILS_AT, budget.slowness = 0.3, 1.0, lambda: 1.0\n"
        "def pytest_configure(config): config.pluginmanager.register(budget)"
    )
    pytester.makepyfile(BURNING)
    result = pytester.runpytest_subprocess("-p", "no:randomly", "-q")
    result.assert_outcomes(passed=3, failed=4)
    for name in ("own_time", "own_fixture", "child", "child_that_lives_on"):
        result.stdout.re_match_lines([rf".*test_{name} passed, but cost [\d.]+ CPU s; a fast test may cost 0.3,.*"])
