"""Makes the harness of this folder importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `fuzzing` is a helper of this folder, not installed
