"""Entry of a helper process into a running container."""

from __future__ import annotations

import os
from typing import Any

from windlass.node.runtime import syscalls


def enter_container(spec: dict[str, Any], init: dict[str, Any]) -> None:
    """Join the namespaces and the cgroup of the container's init. Raises ``OSError``.

    ``spec``, ``init``: records of the attempt. Only children of this process are in the pid
    namespace.
    """
    joined = set((spec.get("join") or {}).get("namespaces") or ())
    own = {
        name for name, wanted in (("mnt", "mount_namespace"), ("pid", "pid_namespace")) if spec.get(wanted)
    }
    if "user" in joined:
        syscalls.enter(init["pid"], init["start_time"], ("user",))
    if spec.get("cgroup"):
        with open(os.path.join(spec["cgroup"], "cgroup.procs"), "w", encoding="ascii") as stream:
            stream.write("0")
    syscalls.enter(init["pid"], init["start_time"], tuple((joined | own) - {"user"}))
