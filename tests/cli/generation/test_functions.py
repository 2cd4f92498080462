"""Functions and scorers that cannot work are refused before a job is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cli.generation.test_local_models import request

from windlass.api.errors import WindlassError
from windlass.cli.generation.manifest import build

MODULE = """
import json
from os import path as place

def describe(row):
    return "x"

try:
    import nothing as fast
except ImportError:
    fast = None

if fast is None:
    def slow(row):
        return "y"

class Writer:
    pass
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "texts.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("def describe(row:\n")
    (tmp_path / "more.py").write_text("globals()['made'] = print\n")
    (tmp_path / "star.py").write_text("from texts import *\n")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/inner.py").write_text("def write(row): ...\n")
    (tmp_path / "parts/__init__.py").write_text("raise RuntimeError('read, not run')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(folder: Path, **given: Any) -> WindlassError:
    with pytest.raises(WindlassError) as failure:
        build(request(folder, **given), "shop", "default")
    return failure.value


@pytest.mark.parametrize("flag", ["function", "scorer"])
def test_function_that_its_module_does_not_define_is_refused(folder: Path, flag: str) -> None:
    error = refused(folder, **{flag: "texts:descrbe"})
    assert error.code == "WL-GENERATE-422"
    named = f"--{flag} texts:descrbe names the function descrbe, and {folder}/texts.py does not define it"
    assert error.message == named
    assert error.evidence == "it defines describe, Writer"
    assert error.remedies[1].endswith(f"--{flag} texts:describe")
    assert "parts/inner.py does not define it" in refused(folder, **{flag: "parts.inner:read"}).message
    broken = refused(folder, **{flag: "broken:describe"})
    assert f"{folder}/broken.py is not valid Python" in broken.message
    assert broken.evidence.startswith("line 1: ")
    assert "there is no module absent" in refused(folder, **{flag: "absent:describe"}).evidence


@pytest.mark.parametrize(
    "reference",
    [
        *("texts:describe", "texts:slow", "texts:fast", "texts:Writer", "texts:Writer.write", "texts:place"),
        *("more:made", "star:describe", "parts.inner:write", "json:dumps", "os.path:join", "math:sqrt"),
    ],
)
def test_function_that_is_there_or_may_be_there_is_taken(folder: Path, reference: str) -> None:
    for given in ({"function": reference}, {"scorer": reference}):
        spec = build(request(folder, **given), "shop", "default")["spec"]
        assert spec["template"]["spec"]["containers"] == [{"name": "worker", "workingDir": str(folder)}]


@pytest.mark.parametrize(
    ("scorer", "words", "remedy"),
    [
        ("judge", "the scorer judge needs url", "--scorer MODULE:NAME"),
        ("length:50-4", "the lower bound 50 above the upper bound 4", "--scorer length:50-400"),
        ("language:xx", "does not know 'xx'", "--scorer language:en"),
        ("regex:(", "has the pattern '('", "--scorer regex:PATTERN"),
    ],
)
def test_scorer_without_valid_arguments_is_refused(
    folder: Path, scorer: str, words: str, remedy: str
) -> None:
    error = refused(folder, scorer=scorer)
    assert error.message == f"--scorer {scorer} is not valid"
    assert words in error.evidence
    assert error.remedies[0].endswith(remedy)
    assert refused(folder, scorer="best").code == "WL-GENERATE-422"


def test_scorer_with_its_arguments_is_taken(folder: Path) -> None:
    served = build(request(folder, scorer="judge", url="http://llm:8000/v1"), "shop", "default")["spec"]
    assert served["outputs"]["quality"] == {"scorer": "judge"}
    assert "template" not in served
    elsewhere = build(request(folder, scorer="absent:score", inline=True), "shop", "default")["spec"]
    assert "template" not in elsewhere
