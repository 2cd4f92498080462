"""Remote shell between the pods of a box, without a server of SSH."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.api.annotations import REMOTE_SHELL
from windlass.kits.files import write_atomic
from windlass.node.pods.files.programs import write_program
from windlass.node.streams import remote_shell

_MODULE = "windlass.node.streams.remote_shell"
_SERVER = "sshd"
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_SERVER_PATH = re.compile(r"(?<![\w./-])(?:/[\w.-]+)*/s?bin/sshd(?![\w./-])")
"""Path of a server of SSH. ``/var/run/sshd`` is the directory that it needs."""
_DIRECTORY = "rsh"
_SERVER_SCRIPT = """\
#!/bin/sh
# Stand-in for a server of SSH: pods of this machine are entered through the node agent.
for word in "$@"; do
  case "$word" in -*D*) trap 'kill $!; exit 0' TERM INT; sleep infinity & wait; exit 0;; esac
done
"""
"""Without -D a server goes to the background, and the script goes on."""
STAND_IN = ("/bin/sh", "-c", "trap 'kill $!; exit 0' TERM INT; sleep infinity & wait")
"""Command of a container in place of a server of SSH that this machine lacks."""


def is_wanted(pod: Mapping[str, Any]) -> bool:
    return (pod["metadata"].get("annotations") or {}).get(REMOTE_SHELL) == "exec"


def install(root: Path) -> Path:
    """Write the programs below the agent's directory; return their directory. Raises ``OSError``."""
    directory = root / _DIRECTORY
    for name in ("ssh", "windlass-rsh"):
        write_program(directory / name, _MODULE)
    server = directory / _SERVER
    if not server.is_file() or server.read_text() != _SERVER_SCRIPT:
        write_atomic(server, _SERVER_SCRIPT.encode(), durable=False)
        server.chmod(0o755)
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


def without_server(argv: Sequence[str], root: Path) -> list[str] | None:
    """Return the command with a stand-in for a server of SSH that this machine, or its configuration, lacks.

    ``None`` if the command needs none. In a script of a shell (``sh -c``), the path of a
    missing server is replaced. ``root``: the agent's directory.
    """
    if not argv:
        return None
    if os.path.basename(argv[0]) == _SERVER:
        files = [argv[0]] if "/" in argv[0] else []
        files += [value for flag, value in itertools.pairwise(argv) if flag == "-f"]
        missing = not files or not all(os.path.exists(path) for path in files)
        return list(STAND_IN) if missing else None
    if len(argv) < 3 or os.path.basename(argv[0]) not in _SHELLS or not argv[1].endswith("c"):
        return None
    server = str(root / _DIRECTORY / _SERVER)
    script = _SERVER_PATH.sub(lambda found: found[0] if os.path.exists(found[0]) else server, argv[2])
    return [*argv[:2], script, *argv[3:]] if script != argv[2] else None
