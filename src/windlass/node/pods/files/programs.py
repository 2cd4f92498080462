"""Programs of the agent that pods start by name: small scripts that run a module of this package."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import windlass
from windlass.kits.files import write_atomic

_ROOT = str(Path(windlass.__file__).parent.parent)
_BOOT = "import sys; sys.path.insert(0, {root!r}); from {module} import main; sys.exit(main(sys.argv[1:]))"


def write_program(path: Path, module: str) -> None:
    """Write a script that runs ``main(arguments)`` of a module. Raises ``OSError``.

    The interpreter is isolated (``-I -S``): neither the user's packages nor the pod's environment
    change it.
    """
    boot = shlex.quote(_BOOT.format(root=_ROOT, module=module))
    text = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {boot} "$@"\n'
    if path.is_file() and path.read_text() == text:
        return
    path.parent.mkdir(mode=0o755, exist_ok=True)
    write_atomic(path, text.encode(), durable=False)
    path.chmod(0o755)
