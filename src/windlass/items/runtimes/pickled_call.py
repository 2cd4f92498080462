"""Class for the runtime ``python`` that calls a pickled function (``windlass.map``).

The folder has the files of the call as :mod:`windlass.sdk.payload` packs them. A row has the
pickled arguments in ``call``; its output has the pickled result in ``result``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windlass.items.runtimes.python_function import ItemTimeout

ERRORS = "errors"
"""Folder of the pickled exceptions, in the folder of the call."""


class PickledCall:
    """Function of a program, loaded once for a worker. ``folder``: the files of the call."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._function: Callable[..., Any] = lambda *arguments: arguments
        self._dumps: Callable[[Any], bytes] = pickle.dumps

    def setup(self) -> None:
        """Load the function. Raises ``RuntimeError`` if another version of Python has pickled it."""
        about = json.loads((self._folder / "call.json").read_text())
        running = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if about["python"] != running:
            raise RuntimeError(
                f"the function was pickled by Python {about['python']}, and the workers run Python {running}: "
                f"run the program with Python {running}, or map with engine='jobs'"
            )
        library = str(self._folder / "cloudpickle.zip")
        sys.path[:] = [library, *about["path"], *(one for one in sys.path if one not in about["path"])]
        with (self._folder / "call.pickle").open("rb") as file:
            self._function = pickle.load(file)[0]
        import cloudpickle

        self._dumps = cloudpickle.dumps

    def process(self, rows: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return an output or an exception for each row."""
        return [self._one(row) for row in rows]

    def _one(self, row: Mapping[str, Any]) -> Any:
        try:
            value = self._function(*pickle.loads(base64.b64decode(row["call"])))
        except ItemTimeout:
            raise
        except SystemExit as error:
            return RuntimeError(f"SystemExit: {error}")
        except Exception as error:
            self._keep(str(row["id"]), error)
            return error
        try:
            return {"result": base64.b64encode(self._dumps(value)).decode()}
        except Exception as error:
            kind = type(value).__name__
            return TypeError(f"the result, of type {kind}, cannot be pickled: {error}")

    def _keep(self, name: str, error: Exception) -> None:
        """Leave exception and traceback for the program. Without the file it shows the message."""
        text = "".join(traceback.format_exception(error))
        sys.stderr.write(text)
        with contextlib.suppress(Exception):  # exceptions with arguments of their own cannot be pickled
            data = self._dumps((error, text, os.environ.get("WINDLASS_BATCH_WORKER", "")))
            pickle.loads(data)
            folder = self._folder / ERRORS
            folder.mkdir(exist_ok=True)
            part = folder / f"{name}.{os.getpid()}.part"
            part.write_bytes(data)
            part.replace(folder / name)
