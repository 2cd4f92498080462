"""File with a user's AutoScaler class, which travels with the job."""

from __future__ import annotations

import ast
import os
import shlex

from windlass.api.errors import WindlassError

MAX_BYTES = 100_000
"""Maximum size of the file in bytes: the job travels in a ConfigMap."""
_BASE = "AutoScaler"


def scaler_text(path: str) -> str:
    """Return the text. Raises :class:`WindlassError` for a file without a class derived from AutoScaler."""
    try:
        with open(path, encoding="utf-8") as stream:
            text = stream.read()
        tree = ast.parse(text, path)
    except OSError as error:
        raise WindlassError(
            "WL-GENERATE-404",
            f"--autoscaler {path} cannot be read: {error.strerror}",
            remedies=(f"ls -l {shlex.quote(os.path.dirname(path) or os.curdir)}",),
        ) from None
    except (ValueError, SyntaxError) as error:
        line = f", line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else f": {error}"
        raise WindlassError(
            "WL-GENERATE-400",
            f"--autoscaler is not valid Python: {path}{line}",
            remedies=(f"python3 -m py_compile {shlex.quote(path)}",),
        ) from None
    if len(text.encode()) > MAX_BYTES:
        raise WindlassError(
            "WL-GENERATE-413",
            f"--autoscaler {path} has {len(text.encode())} bytes",
            evidence=f"files of up to {MAX_BYTES} bytes travel with the job",
            remedies=(
                "kubectl explain aigcjob.spec.autoscale.plugin   (module:Class, or a file of the node)",
            ),
        )
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if not any(_name(base).endswith(_BASE) for one in classes for base in one.bases):
        found = ", ".join(one.name for one in classes) or "none"
        raise WindlassError(
            "WL-GENERATE-400",
            f"--autoscaler {path} has no class derived from {_BASE}",
            evidence=f"classes in it: {found}; the base class comes by   from kurator_sdk import {_BASE}",
            remedies=(f"grep -n 'import\\|class' {shlex.quote(path)}",),
        )
    return text


def _name(base: ast.expr) -> str:
    return base.id if isinstance(base, ast.Name) else base.attr if isinstance(base, ast.Attribute) else ""
