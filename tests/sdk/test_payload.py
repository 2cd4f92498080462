"""Calls on their way to a rank and outcomes on their way back."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.api.errors import WindlassError
from windlass.sdk import payload, remote_call
from windlass.sdk.errors import JobFailed, RemoteTraceback
from windlass.sdk.remote_call import MARK


def played(folder: Path, function: Callable[..., Any], *arguments: Any, rank: str = "", **about: Any) -> Any:
    """Run the call in a fresh interpreter as a rank of a cluster does; return outcome and exit status."""
    parts = payload.pack(function, arguments, {}, remote=True)
    for name, data in parts.items():
        (folder / name).write_bytes(data)
    if about:
        (folder / "call.json").write_text(json.dumps(json.loads(parts["call.json"]) | about))
    done = subprocess.run(
        [sys.executable, "-I", str(folder / "remote_call.py"), str(folder)],
        capture_output=True,
        text=True,
        env={"RANK": rank, "HOSTNAME": "pod"},
    )
    data = payload.from_output(done.stdout.splitlines())
    assert data is not None, done
    return payload.unpack(data), done


def test_a_value_comes_back_over_the_output(tmp_path: Path) -> None:
    outcome, done = played(
        tmp_path, lambda size: print("no line end", end="") or "y" * size, 20_000, rank="3"
    )
    assert (outcome.value, outcome.rank, outcome.host, outcome.error) == ("y" * 20_000, 3, "pod", "")
    assert done.returncode == 0


def test_a_function_of_the_users_own_module_is_shipped_by_value(tmp_path: Path) -> None:
    outcome, _ = played(tmp_path, helper, 20)
    assert outcome.value == 42


def helper(number: int) -> int:
    return 2 * number + ADDED


ADDED = 2


class Picky(Exception):
    """Exception with a pickle that cannot be read."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def picky() -> None:
    raise Picky(1, 2)


def test_exceptions_that_cannot_be_pickled_come_as_words(tmp_path: Path) -> None:
    outcome, done = played(tmp_path, picky)
    error = outcome.raised("train")
    assert done.returncode == 1
    assert (type(error), str(error)) == (RuntimeError, "Picky: 1 and 2")
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "rank 0 of train, pod pod" in str(error.__cause__)
    assert "remote_call.py" not in str(error.__cause__), "only the frames of the function"
    assert "Picky" in done.stderr, "the rank's own output has it, too"


def test_the_end_by_exit(tmp_path: Path) -> None:
    assert played(tmp_path, sys.exit)[0].value is None
    outcome, done = played(tmp_path, sys.exit, 3)
    assert (type(outcome.raised("a")), outcome.error, done.returncode) == (RuntimeError, "SystemExit: 3", 1)


def test_another_version_of_python_is_told_instead_of_a_broken_pickle(tmp_path: Path) -> None:
    outcome, _ = played(tmp_path, abs, 1, python="3.4")
    assert outcome.error.startswith("the function was pickled by Python 3.4, the job runs Python 3.")


def test_a_result_too_large_for_the_output(tmp_path: Path) -> None:
    outcome, _ = played(tmp_path, bytes, remote_call.MAX_OUTPUT + 1)
    assert outcome.error == "the result is 4.0 MiB in size, the maximum is 4 MiB: write it to a file instead"


@given(st.binary(max_size=20_000), st.lists(st.text("ab\n ", max_size=5), max_size=3))
def test_an_outcome_is_found_between_other_lines(data: bytes, others: list[str]) -> None:
    text = base64.b64encode(data).decode() or "="
    pieces = [text[at : at + 100] for at in range(0, len(text), 100)]
    lines = [f"{remote_call.MARK}{number}/{len(pieces)} {piece}" for number, piece in enumerate(pieces, 1)]
    if data:
        assert payload.from_output([*others, *lines, *others]) == data
        assert payload.from_output([*lines[:1], *lines]) == data, "of a rank that began twice the last counts"
    assert payload.from_output([*others, *lines[1:]]) is None


def test_a_call_that_is_too_large_for_a_config_map() -> None:
    with pytest.raises(WindlassError, match=r"are 1\.0 MiB in size") as caught:
        payload.config_map("a", "default", {"call.pickle": bytes(1_000_001)})
    assert caught.value.code == "WL-SDK-413"


def test_what_cannot_be_pickled_names_the_function() -> None:
    with pytest.raises(WindlassError, match="helper or its arguments cannot be pickled"):
        payload.pack(helper, (sys.stdout,), {}, remote=False)


def test_a_failed_job_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(JobFailed("train", "train: failed, exit 1", 1, ["a", "b"])))
    assert str(error) == "train: failed, exit 1\nlast output:\n  a\n  b"


def test_the_import_loads_nothing_heavy() -> None:
    """The figure is in ``benchmarks/install.py``."""
    script = "import sys; from windlass import submit, map, Executor, Future; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"click", "yaml", "numpy", "cryptography", "uvicorn", "asyncio", "ssl", "zipfile", "cloudpickle"}
    assert heavy.isdisjoint(loaded)


def test_outcome_is_read_from_the_end_of_the_output() -> None:
    read: list[int | None] = []

    def output(lines: list[str]) -> Callable[[int | None], list[str]]:
        def tail(count: int | None) -> list[str]:
            read.append(count)
            return lines if count is None else lines[-count:]

        return tail

    def outcome(pieces: int) -> list[str]:
        text = base64.b64encode(bytes(3 * pieces)).decode()
        return [f"{MARK}{n + 1}/{pieces} {text[4 * n : 4 * n + 4]}" for n in range(pieces)]

    noise = ["epoch"] * 100_000
    assert payload.from_end(output([*noise, *outcome(2), "bye"]), complete=True) == bytes(6)
    assert read == [40]
    assert payload.from_end(output([*noise, *outcome(900)]), complete=True) == bytes(2700)
    assert read[1:] == [40, read[2]]
    assert (read[2] or 0) < 2000
    read.clear()
    assert payload.from_end(output(noise), complete=False) is None  # a failed rank has left nothing
    assert len(read) == 2
    assert payload.from_end(output([*outcome(1), *noise]), complete=True) == bytes(3)
    assert read[-1] is None
