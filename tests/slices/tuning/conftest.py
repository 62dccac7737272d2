"""Tests of tuning."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `fake_runs` is a helper of this folder, not a package
