"""Files that people name: their text, or why there is none."""

from __future__ import annotations

from pathlib import Path

from windlass.api.errors import WindlassError


def read_text(path: str, wrong: str) -> str:
    """The text of a file in UTF-8. Raises :class:`WindlassError`, of code ``wrong`` where it is no text."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise WindlassError(
            "WL-USE-400",
            f"{path} does not exist",
            evidence=f"looked in {Path.cwd()}",
            remedies=(f"ls {Path(path).parent}",),
        ) from None
    except UnicodeDecodeError as error:
        raise WindlassError(
            wrong,
            f"{path} is not text in UTF-8",
            evidence=str(error),
            remedies=(f"file {path}", f"iconv -f latin1 -t utf-8 {path}"),
        ) from error
    except OSError as error:
        raise WindlassError(
            "WL-USE-400",
            f"{path} cannot be read",
            evidence=error.strerror or "",
            remedies=(f"ls -ld {path}",),
        ) from error
