"""Makes the helpers of this folder and those of the readers importable: neither is installed."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "readers")]
