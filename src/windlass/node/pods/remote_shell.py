"""Remote shell between the pods of a box, without a server of SSH."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.api.annotations import REMOTE_SHELL
from windlass.node.pods.programs import write_program
from windlass.node.streams import remote_shell

_MODULE = "windlass.node.streams.remote_shell"
_SERVER = "sshd"
STAND_IN = ("/bin/sh", "-c", "trap 'kill $!; exit 0' TERM INT; sleep infinity & wait")
"""Command of a container in place of a server of SSH that this machine lacks."""


def is_wanted(pod: Mapping[str, Any]) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(REMOTE_SHELL) == "exec"


def install(root: Path) -> Path:
    """Write the programs below the agent's directory; return their directory. Raises ``OSError``."""
    directory = root / "rsh"
    for name in ("ssh", "windlass-rsh"):
        write_program(directory / name, _MODULE)
    return directory


def environment(node_socket: Path, namespace: str) -> dict[str, str]:
    """Return the variables of a pod that uses the remote shell.

    Open MPI refuses to run as root without the last two. The user of a box's pods is that of the
    agent, whatever user an image has.
    """
    values = {remote_shell.SOCKET: str(node_socket), remote_shell.NAMESPACE: namespace}
    if os.geteuid() == 0:
        values |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return values


def needs_stand_in(argv: Sequence[str]) -> bool:
    """Return whether the command is a server of SSH that this machine, or its configuration, lacks."""
    if not argv or os.path.basename(argv[0]) != _SERVER:
        return False
    files = [argv[0]] if "/" in argv[0] else []
    files += [value for flag, value in itertools.pairwise(argv) if flag == "-f"]
    return not files or not all(os.path.exists(path) for path in files)
