"""Program of a rank: call the function and leave its outcome.

It is shipped as text and needs the standard library only. ``python remote_call.py FOLDER [RESULTS]``: the call is in
FOLDER; the outcome goes to a file of RESULTS or, without it, to the standard output as lines that begin with
:data:`MARK`.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import time
import traceback

MARK = "windlass-outcome "
LINE = 4096
"""Characters of a line of an outcome."""
MAX_OUTPUT = 4 * 2**20
"""Maximum size in bytes of an outcome on the standard output."""


def rank() -> int:
    for name in ("RANK", "VC_TASK_INDEX", "JOB_COMPLETION_INDEX"):
        text = os.environ.get(name, "")
        if text.isdigit():
            return int(text)
    return 0


def call(folder: str) -> dict[str, object]:
    """Return the outcome of the call: ``value``, or ``error``, ``text`` and ``exception``."""
    with open(os.path.join(folder, "call.json"), encoding="utf-8") as file:
        about = json.load(file)
    running = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if about["python"] != running:
        return problem(
            f"the function was pickled by Python {about['python']}, the job runs Python {running}: "
            "use an image with the same version"
        )
    library = os.path.join(
        folder, "cloudpickle.zip"
    )  # first, as a pickle needs the version that has written it
    sys.path[:] = [library, *about["path"], *(one for one in sys.path if one not in about["path"])]
    try:
        with open(os.path.join(folder, "call.pickle"), "rb") as file:
            function, arguments, options = pickle.load(file)
        return {"value": function(*arguments, **options)}
    except SystemExit as error:
        if error.code in (None, 0):
            return {"value": None}
        return raised(error)
    except BaseException as error:  # KeyboardInterrupt, too: the rank was asked to end
        return raised(error)


def raised(error: BaseException) -> dict[str, object]:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next  # the user's frames
    text = "".join(traceback.format_exception(type(error), error, trace))
    sys.stderr.write(text)
    return {"error": f"{type(error).__name__}: {error}", "text": text, "exception": error}


def problem(message: str) -> dict[str, object]:
    sys.stderr.write(message + "\n")
    return {"error": message, "text": message, "exception": None}


def packed(outcome: dict[str, object]) -> bytes:
    """Return the pickled outcome; what cannot be pickled is replaced by words."""
    outcome |= {"rank": rank(), "host": os.environ.get("HOSTNAME", ""), "time": time.time()}  # noqa: TID251
    try:
        from cloudpickle import dumps
    except ImportError:  # the call itself could not be read
        from pickle import dumps
    try:
        data = dumps(outcome)
        if outcome.get("exception") is not None:
            pickle.loads(data)  # exceptions with arguments of their own fail only here
        return data
    except Exception as error:
        if "value" in outcome:
            kind = type(outcome.pop("value")).__name__
            outcome |= problem(f"the result, of type {kind}, cannot be pickled: {error}")
        outcome["exception"] = None
        return pickle.dumps(outcome)


def leave(data: bytes, results: str) -> None:
    """Write the outcome where the submitter reads it."""
    if results:
        path = os.path.join(results, f"outcome-{rank()}")
        with open(path + ".part", "wb") as file:
            file.write(data)
        os.replace(path + ".part", path)
        return
    text = base64.b64encode(data).decode()
    pieces = [text[at : at + LINE] for at in range(0, len(text), LINE)]
    sys.stdout.flush()
    for number, piece in enumerate(pieces, 1):
        sys.stdout.write(f"{MARK}{number}/{len(pieces)} {piece}\n")
    sys.stdout.flush()


def main() -> int:
    results = sys.argv[2] if len(sys.argv) > 2 else ""
    outcome = call(sys.argv[1])
    data = packed(outcome)
    if not results and len(data) > MAX_OUTPUT:
        size = f"{len(data) / 2**20:.1f} MiB"
        outcome = problem(f"the result is {size} in size, the maximum is 4 MiB: write it to a file instead")
        data = packed(outcome)
    leave(data, results)
    return 0 if "value" in outcome else 1


if __name__ == "__main__":
    sys.exit(main())
