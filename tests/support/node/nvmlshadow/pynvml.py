"""Stands before the real binding on ``PYTHONPATH``: the same module, over the script of ``SCRIPTED_NVML``.

So a whole box runs on cards that are not there, with nothing of it in the product.
"""

import importlib.machinery
import os
import sys
from pathlib import Path

_here = str(Path(__file__).resolve().parent)
sys.path.insert(0, str(Path(_here).parent))
try:
    from scripted_nvml import Script, load_binding
finally:
    sys.path.remove(str(Path(_here).parent))

_real = importlib.machinery.PathFinder.find_spec(
    "pynvml", [entry for entry in sys.path if entry and str(Path(entry).resolve()) != _here]
)
if _real is None or _real.origin is None:
    raise ImportError("nvidia-ml-py is not installed")
_module = load_binding(_real.origin, Script(Path(os.environ["SCRIPTED_NVML"])))
sys.modules[__name__] = _module
