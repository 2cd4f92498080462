"""Helper process that attaches slirp's tap to the bridge of the pod network."""

from __future__ import annotations

import os

from windlass.node.runtime import attempt_files
from windlass.node.sandbox import network_namespace
from windlass.node.sandbox.network_namespace import TAP


def main(directory: str) -> int:
    """Write ``s`` to stdout, or the error."""
    holder = attempt_files.read(directory, network_namespace.RECORD)
    try:
        if holder is None:
            raise OSError("the pod network does not exist")
        network_namespace.attach(holder["pid"], holder["start_time"], holder["user_namespace"], TAP)
    except OSError as error:
        os.write(1, str(error).encode())
        return 1
    os.write(1, b"s")
    return 0
