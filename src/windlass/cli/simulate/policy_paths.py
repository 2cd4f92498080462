"""A folder where one scheduler configuration is meant: what in it may have been."""

from __future__ import annotations

from pathlib import Path

from windlass.api.errors import WindlassError
from windlass.cli.text import plural

CONFIGURATIONS = (".conf", ".yaml", ".yml")
"""How files of scheduler configurations are called."""
SHOWN = 3


def reject_directory(name: str, remedy: str) -> None:
    """Raises :class:`WindlassError` where what is given for ``--policy`` is a folder, with the files in it that may
    have been meant."""
    folder = Path(name)
    if not folder.is_dir():
        return
    found = sorted(path for ending in CONFIGURATIONS for path in folder.glob(f"*{ending}") if path.is_file())
    raise WindlassError(
        "WL-USE-400",
        f"--policy {name}: that is a folder; a policy is a name, or one file with a scheduler configuration",
        evidence=f"{plural(len(found), 'configuration')} in it ({', '.join(CONFIGURATIONS)})",
        remedies=(*[f"--policy {path}" for path in found[:SHOWN]], remedy),
    )
