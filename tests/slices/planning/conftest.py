"""Makes `published`, a helper of this folder that is not installed, importable."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
