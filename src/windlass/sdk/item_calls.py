"""Calls of a function as rows of a batch: their ids, the file of the rows, and the results in order."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import pickle
import types
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from windlass.api.errors import WindlassError
from windlass.items.runtimes.pickled_call import ERRORS
from windlass.sdk.errors import ItemFailed, RemoteTraceback

_ID_LENGTH = 20


def fingerprint(function: Callable[..., Any]) -> str:
    """Return a hash of the code of a function, which is equal in each run of a program.

    Functions that it calls are not part of it. Values that it takes from an enclosing function are.
    """
    digest = hashlib.sha256()
    _add_function(digest, function)
    return digest.hexdigest()


def _add_function(digest: Any, function: Any) -> None:
    name = getattr(function, "__qualname__", type(function).__qualname__)
    digest.update(f"{getattr(function, '__module__', '')}:{name}".encode())
    code = getattr(function, "__code__", None)
    if code is None:  # an instance, a partial or a function of C
        with contextlib.suppress(Exception):
            digest.update(pickle.dumps(function))
        return
    _add_code(digest, code)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    for value in (*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
        if isinstance(value, types.FunctionType):
            if value is not function:
                _add_function(digest, value)
            continue
        with contextlib.suppress(Exception):  # what cannot be pickled is told when the call is packed
            digest.update(pickle.dumps(value))


def _add_code(digest: Any, code: types.CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for value in code.co_consts:
        if isinstance(value, types.CodeType):
            _add_code(digest, value)
        elif isinstance(value, frozenset):
            digest.update(repr(sorted(map(repr, value))).encode())
        else:
            digest.update(repr(value).encode())


class CallRows:
    """File with one row for each call. ``digest`` is that of all calls after :meth:`write`."""

    def __init__(self, path: Path, code: str) -> None:
        self.path = path
        self.count = 0
        self._code = code
        self._all = hashlib.sha256(code.encode())

    @property
    def digest(self) -> str:
        return self._all.hexdigest()[:8]

    def write(self, calls: Iterable[tuple[Any, ...]]) -> None:
        """Write the rows. Raises :class:`WindlassError` for arguments that cannot be pickled."""
        import cloudpickle

        seen: dict[str, int] = {}
        with self.path.open("w") as file:
            for call in calls:
                try:
                    data = cloudpickle.dumps(call)
                except Exception as error:
                    raise WindlassError(
                        "WL-SDK-422",
                        f"the arguments of call {self.count + 1} cannot be pickled",
                        evidence=f"{type(error).__name__}: {error}",
                        remedies=("open files, locks and connections in the function, and pass their names",),
                    ) from error
                name = hashlib.sha256(self._code.encode() + data).hexdigest()[:_ID_LENGTH]
                times = seen[name] = seen.get(name, 0) + 1
                name = name if times == 1 else f"{name}-{times}"
                self._all.update(name.encode())
                file.write(json.dumps({"id": name, "call": base64.b64encode(data).decode()}) + "\n")
                self.count += 1


def read_results(rows: Path, outputs: Path, errors: str) -> Iterator[Any]:
    """Yield results in the order of the calls.

    ``errors``: ``raise`` raises the exception of a call when its turn comes, ``return`` yields it.
    """
    with rows.open() as calls, outputs.open() as results:
        for line in calls:
            name = _name(line)
            found = json.loads(next(results))
            if str(found["id"]) != name:
                raise RuntimeError(f"{outputs} has the row {found['id']} where {name} is expected")
            if "result" in found:
                yield pickle.loads(base64.b64decode(found["result"]))
                continue
            error = _exception(rows.parent / ERRORS / name, found)
            if errors == "raise":
                raise error
            yield error


def _name(line: str) -> str:
    return line[len('{"id": "') : line.index('"', len('{"id": "'))]


def _exception(path: Path, row: dict[str, Any]) -> Exception:
    """Return the exception of the function with its traceback, or :class:`ItemFailed`."""
    words = ItemFailed(
        str(row["id"]), str(row.get("reason")), str(row["error"]), int(row.get("attempts") or 0)
    )
    try:
        error, text, worker = pickle.loads(path.read_bytes())
    except OSError:
        return words
    if not isinstance(error, Exception) or not words.message.startswith(type(error).__name__):
        return words  # the last attempt ended in another way
    error.__cause__ = RemoteTraceback(f"worker {worker}\n{text}")
    return error
