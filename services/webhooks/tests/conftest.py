from __future__ import annotations

import sys
from pathlib import Path

# The tests import webhook_world by name.
sys.path.insert(0, str(Path(__file__).parent))
