"""For those who write policies: a small cluster to try one in, and a check that it keeps its promises.

::

    scene = Scene(MyPolicy())
    scene.node("n1", gpu=8)
    scene.gang("train", pods=4, gpu=1, labels={"team": "a"})
    scene.cycle()
    assert scene.where("train") == {"n1": 4}

    check(MyPolicy())

Everything here is the scheduler itself, without a server.
"""

from __future__ import annotations

from windlass.testing.contract import ContractViolation, check
from windlass.testing.scene import Scene

__all__ = ["ContractViolation", "Scene", "check"]
