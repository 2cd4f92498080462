"""Tools for authors of policies: a small cluster to try one in, and a check of its contract.

::

    scene = Scene(MyPolicy())
    scene.node("n1", gpu=8)
    scene.gang("train", pods=4, gpu=1, labels={"team": "a"})
    scene.cycle()
    assert scene.where("train") == {"n1": 4}

    check(MyPolicy())

All of it is the scheduler itself, without a server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windlass.spi import renamed
from windlass.testing.contract import ContractViolation, check
from windlass.testing.scene import Scene

__all__ = ["ContractViolation", "Scene", "check"]

if not TYPE_CHECKING:
    __getattr__ = renamed.old_names(__name__, {"BrokenPromise": "ContractViolation"})
