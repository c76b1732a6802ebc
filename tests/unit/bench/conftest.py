"""The benchmarks are a package in the repository's root, which is not on the path of the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
