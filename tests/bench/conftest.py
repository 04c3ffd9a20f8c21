"""Benchmarks are scripts beside the package; here they are imported."""

import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"
sys.path.insert(0, str(BENCH))
