"""Where the helpers of this folder are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))  # `hang_cases` and `hang_dumps` are no package
