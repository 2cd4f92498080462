"""A helper process: enter the box and make slirp's tap a port of its bridge."""

from __future__ import annotations

import os

from windlass.node.runtime import attempt_files
from windlass.node.sandbox import network_namespace
from windlass.node.sandbox.network_namespace import TAP


def main(folder: str) -> int:
    """Says ``s``, or why not."""
    holder = attempt_files.read(folder, network_namespace.RECORD)
    try:
        if holder is None:
            raise OSError("there is no box")
        network_namespace.attach(holder["pid"], holder["start_time"], holder["user_namespace"], TAP)
    except OSError as error:
        os.write(1, str(error).encode())
        return 1
    os.write(1, b"s")
    return 0
