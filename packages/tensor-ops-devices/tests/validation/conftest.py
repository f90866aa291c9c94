"""Fixtures of the tests of the validator."""

import sys
from pathlib import Path

# pytest's importlib mode does not put this folder, which has `validated`, on the path.
sys.path.append(str(Path(__file__).parent))
