"""Makes the helper of this folder importable."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `kineto_text` is a helper of this folder, not a package
