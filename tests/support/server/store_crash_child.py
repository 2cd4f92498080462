"""A process that writes to a store as fast as it can and tells every acknowledgement; it is there to be killed.

``python store_crash_child.py DATABASE ROUND``: lines ``name version`` on standard output.
"""

from __future__ import annotations

import asyncio
import os
import sys

from windlass.kits.clock import SystemClock
from windlass.store import checkpoint
from windlass.store.store import Store

WRITERS = 16
# So small that the log is folded in, and starts again, many times before the end.
checkpoint._PAGES_AT_ONCE = 40
checkpoint._LONG_LOG_PAGES = 400


async def main(path: str, number: str) -> None:
    store = Store.open(path, clock=SystemClock())
    os.write(1, f"open {store.rv}\n".encode())

    async def write(writer: int) -> None:
        count = 0
        while True:
            name = f"r{number}-w{writer}-{count}"
            entry = await store.create(
                "pods", "d", name, {"metadata": {"name": name, "namespace": "d"}, "pad": "x" * 1500}
            )
            os.write(1, f"{name} {entry.rv}\n".encode())
            if count % 3 == 2:
                entry = await store.update(
                    "pods", "d", name, {"metadata": {"name": name, "namespace": "d"}, "count": count}
                )
                os.write(1, f"{name} {entry.rv}\n".encode())
            count += 1

    await asyncio.gather(*(write(writer) for writer in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
