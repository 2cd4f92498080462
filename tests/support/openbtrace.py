"""The replay of ``benchmarks.openb``, and where its trace lies."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # the benchmarks are no installed package
    sys.path.append(str(ROOT))

from benchmarks.openb import (  # noqa: E402
    Host,
    Outcome,
    Pod,
    Replay,
    hosts,
    mix_of,
    pods,
    published,
    sequence,
)

__all__ = ["FOLDER", "Host", "Outcome", "Pod", "Replay", "hosts", "mix_of", "pods", "published", "sequence"]

FOLDER = ROOT.parent / "shared" / "traces" / "openb"
