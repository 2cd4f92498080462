"""Files of a model in a worker: fetched, found, loaded into memory or attached."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from windlass.items.runtimes.base import SetupError
from windlass.items.worker.model import model_files


def environment(tmp_path: Path, **more: object) -> dict[str, str]:
    (tmp_path / "weights").write_bytes(b"abc")
    asked = {"name": "tiny", "source": (tmp_path / "weights").as_uri(), **more}
    memory = str(tmp_path / "memory")
    Path(memory).mkdir(exist_ok=True)
    return {
        "WINDLASS_MODEL": json.dumps(asked),
        "WINDLASS_MODELS": str(tmp_path / "models"),
        "WINDLASS_MODEL_MEMORY": memory,
    }


def test_the_first_worker_fetches_and_the_next_finds(tmp_path: Path) -> None:
    hows = []
    for _ in range(2):
        with model_files(environment(tmp_path)) as found:
            hows.append(found.how)
            assert (Path(found.environment["WINDLASS_MODEL_PATH"]) / "weights").read_bytes() == b"abc"
    assert hows == ["fetched", "found"]


def test_one_worker_loads_three_attach_and_the_last_frees_the_memory(tmp_path: Path) -> None:
    given = environment(tmp_path, memory=0)
    with ExitStack() as stack:
        found = [stack.enter_context(model_files(given)) for _ in range(4)]
        assert [each.how for each in found] == ["loaded", "attached", "attached", "attached"]
        (place,) = {each.environment["WINDLASS_MODEL_PATH"] for each in found}
        assert place.startswith(str(tmp_path / "memory"))
        assert (Path(place) / "weights").read_bytes() == b"abc"
    assert not Path(place).exists()


def test_a_source_that_has_changed_since_is_loaded_next_to_the_earlier_copy(tmp_path: Path) -> None:
    given = environment(tmp_path, memory=0)
    with model_files(given) as first:
        (tmp_path / "weights").write_bytes(b"changed")
        later = {**given, "WINDLASS_MODELS": str(tmp_path / "other")}
        with model_files(later) as second:
            assert (first.how, second.how) == ("loaded", "loaded")
            texts = [
                (Path(each.environment["WINDLASS_MODEL_PATH"]) / "weights").read_bytes()
                for each in (first, second)
            ]
    assert texts == [b"abc", b"changed"]


def test_a_model_that_cannot_be_had_ends_the_worker_with_the_reason(tmp_path: Path) -> None:
    given = environment(tmp_path, sha256="0" * 64)
    with (
        pytest.raises(SetupError, match=r"model tiny: .* has SHA-256 \w+, not 0+ as was asked for"),
        model_files(given),
    ):
        pass


def test_a_job_without_a_model_changes_nothing() -> None:
    with model_files({"A": "1"}) as found:
        assert (found.how, found.environment) == ("", {"A": "1"})
