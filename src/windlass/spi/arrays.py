"""Columns of nodes and cards, by what they hold. They stand by themselves: commands read objects without NumPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
