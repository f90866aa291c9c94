"""Lets tests import the modules beside them."""

import sys
from pathlib import Path

# pytest's importlib mode does not put this directory on the path.
sys.path.insert(0, str(Path(__file__).parent))
