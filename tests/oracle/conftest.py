"""Makes the generator and the helpers of this folder importable: neither is installed."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[at]) for at in (0, 2)]
