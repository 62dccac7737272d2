"""Makes `fake_runs` importable: tunings of no real job, as the tests of tuning make them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "slices" / "tuning"))
