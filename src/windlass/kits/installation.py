"""Commands that install extras or a newer version, for the way in which this package was installed.

Windlass is not on the Python package index, so ``pip install 'windlass[plots]'`` works only if the
package came from an index. pip records its origin in ``direct_url.json`` (PEP 610).
"""

from __future__ import annotations

import os
import shlex
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

_NAME = "windlass"


def extra_command(extra: str) -> str:
    """Return the command that installs the packages of an extra.

    From the installed checkout if it is still there, else the packages by their own names.
    """
    origin, editable = _origin()
    if editable or not origin:
        packages = _requirements(extra)
        return f"pip install {shlex.join(packages)}" if packages else f"pip install '{_NAME}[{extra}]'"
    return f"pip install {shlex.quote(f'{origin}[{extra}]')}"


def upgrade_command() -> str:
    """Return the command that installs the current version of the same origin."""
    origin, editable = _origin()
    if editable:
        return f"git -C {shlex.quote(origin)} pull"
    return f"pip install --upgrade {shlex.quote(origin)}" if origin else f"pip install --upgrade {_NAME}"


@cache
def _origin() -> tuple[str, bool]:
    """Return the directory that was installed, and whether the installation is editable.

    The directory is ``.`` if it is the current one, and empty if it is unknown or gone.
    """
    import json
    from importlib import metadata

    try:
        text = metadata.distribution(_NAME).read_text("direct_url.json")
        document = json.loads(text or "{}")
        url = urlsplit(str(document["url"]))
    except (metadata.PackageNotFoundError, ValueError, KeyError, TypeError):
        return "", False
    path = Path(unquote(url.path))
    if url.scheme != "file" or not (path / "pyproject.toml").is_file():
        return "", False
    editable = bool((document.get("dir_info") or {}).get("editable"))
    try:
        here = os.path.samefile(path, ".")
    except OSError:
        here = False
    return ("." if here else str(path)), editable


def _requirements(extra: str) -> list[str]:
    from importlib import metadata

    try:
        listed = metadata.requires(_NAME) or []
    except metadata.PackageNotFoundError:
        return []
    found = (text.partition(";") for text in listed)
    return [name.strip() for name, _, marker in found if f"extra == '{extra}'" in marker.replace('"', "'")]
