"""The function of a job on its way to the ranks, and its outcome on the way back."""

from __future__ import annotations

import base64
import functools
import io
import json
import pickle
import sys
import types
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.sdk.errors import RemoteTraceback
from windlass.sdk.remote_call import LINE, MARK, MAX_OUTPUT

MAX_CONFIG_MAP = 1_000_000
"""Maximum size in bytes of a call on a cluster, where it is a ConfigMap (limit of Kubernetes: 1 MiB)."""
_FEW_LINES = 40
_MOST_LINES = -(-4 * MAX_OUTPUT // (3 * LINE)) + _FEW_LINES
"""Lines of the largest outcome, with some that a rank prints after it."""


def pack(
    function: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any], *, remote: bool
) -> dict[str, bytes]:
    """Return the files of a call.

    ``remote``: the ranks don't have this machine's files, so the function's own module is shipped by value.
    Raises :class:`WindlassError` (``WL-SDK-422``) for what cannot be pickled.
    """
    import cloudpickle

    module = _own_module(function) if remote else None
    if module is not None:
        cloudpickle.register_pickle_by_value(module)
    try:
        call = cloudpickle.dumps((function, arguments, dict(options)))
    except Exception as error:
        raise WindlassError(
            "WL-SDK-422",
            f"{_name(function)} or its arguments cannot be pickled",
            evidence=f"{type(error).__name__}: {error}",
            remedies=("open files, locks and connections inside of the function, and pass their names",),
        ) from error
    finally:
        if module is not None:
            cloudpickle.unregister_pickle_by_value(module)
    about = {
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "path": [] if remote else [str(Path(one).resolve()) for one in sys.path],
    }
    return {
        "call.json": json.dumps(about).encode(),
        "call.pickle": call,
        "cloudpickle.zip": _library(),
        "remote_call.py": (files("windlass.sdk") / "remote_call.py").read_bytes(),
    }


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", "") or type(function).__name__


def _own_module(function: Callable[..., Any]) -> types.ModuleType | None:
    """Return the module of a function if it is the user's own: not installed, not part of Python."""
    module = sys.modules.get(getattr(function, "__module__", "") or "")
    path = getattr(module, "__file__", None)
    if module is None or path is None or module.__name__ == "__main__":
        return None
    installed = Path(path).parts
    if "site-packages" in installed or "dist-packages" in installed or path.startswith(sys.base_prefix):
        return None
    return module


@functools.cache
def _library() -> bytes:
    """Return cloudpickle as a zip file, for images without it."""
    import cloudpickle

    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(Path(cloudpickle.__file__).parent.glob("*.py")):
            target.writestr(zipfile.ZipInfo(f"cloudpickle/{path.name}"), path.read_bytes())
    return archive.getvalue()


def config_map(name: str, namespace: str, parts: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the ConfigMap of a call. Raises :class:`WindlassError` (``WL-SDK-413``) if it is too large."""
    size = sum(map(len, parts.values()))
    if size > MAX_CONFIG_MAP:
        raise WindlassError(
            "WL-SDK-413",
            f"the function and its arguments are {size / 2**20:.1f} MiB in size",
            evidence="on a cluster they travel as a ConfigMap, of at most 1 MiB",
            remedies=("put the data on a volume or in an object store, and pass its name",),
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "binaryData": {name: base64.b64encode(data).decode() for name, data in parts.items()},
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of the call in one rank. ``time``: its end in Unix seconds; ``host``: the pod's name."""

    rank: int
    host: str
    time: float
    value: Any = None
    error: str = ""
    text: str = ""
    exception: BaseException | None = None

    def raised(self, job: str) -> BaseException:
        """Return the exception to raise here, with the rank and its traceback as the cause."""
        where = f"rank {self.rank} of {job}" + (f", pod {self.host}" if self.host else "")
        error = self.exception
        if error is None or not isinstance(error, Exception):  # SystemExit would end this program
            error = RuntimeError(self.error)
        error.__cause__ = RemoteTraceback(f"{where}\n{self.text}")
        return error


def unpack(data: bytes) -> Outcome:
    """Return the outcome that a rank has left. It was written by the function of this program's user."""
    found = pickle.loads(data)
    keys = ("rank", "host", "time", "value", "error", "text", "exception")
    return Outcome(**{key: found[key] for key in keys if key in found})


def from_end(read: Callable[[int | None], Iterable[str]], *, complete: bool) -> bytes | None:
    """Return the outcome at the end of a rank's output; ``None`` if it is missing.

    ``read``: returns the last lines of the output; all without a number. ``complete``: the rank
    succeeded, so an outcome that is not near the end is looked for in the whole output.
    """
    for lines in (_FEW_LINES, _MOST_LINES, *((None,) if complete else ())):
        if (found := from_output(read(lines))) is not None:
            return found
    return None


def from_output(lines: Iterable[str]) -> bytes | None:
    """Return the outcome in the output of a rank; ``None`` if it is missing or incomplete."""
    pieces: dict[int, str] = {}
    total = 0
    for line in lines:
        _, mark, rest = line.partition(MARK)  # what comes before it is output without a line end
        if not mark:
            continue
        number, _, rest = rest.partition("/")
        of, _, piece = rest.partition(" ")
        if not (number.isdecimal() and of.isdecimal()):
            continue  # the tail begins within the line
        if number == "1":
            pieces.clear()
        pieces[int(number)] = piece.strip()
        total = int(of)
    if not total or sorted(pieces) != list(range(1, total + 1)):
        return None
    return base64.b64decode("".join(pieces[number] for number in sorted(pieces)))
