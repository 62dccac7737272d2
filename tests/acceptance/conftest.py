"""Lets the acceptance tests import their helper."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
