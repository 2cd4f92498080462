"""A job runs with the lowest and with the newest versions that ``pyproject.toml`` allows."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_bounds  # noqa: E402


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return check_bounds.build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
@pytest.mark.parametrize("which", check_bounds.SETS)
def test_a_job_runs_with_the_versions_allowed(which: str, wheel: Path) -> None:
    if which == "lowest" and sys.version_info[:2] != check_bounds.LOWEST_PYTHON:
        pytest.skip("the lowest versions have wheels for Python 3.11 only")
    try:
        check_bounds.check(which, wheel)
    except check_bounds.NoIndex as error:
        pytest.skip(f"no package index can be reached: {error}")


def test_without_an_index_the_check_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    monkeypatch.setattr(check_bounds, "build", lambda folder: folder / "windlass-0.1.0-py3-none-any.whl")
    monkeypatch.setattr(check_bounds, "requirements", lambda which: ["windlass-has-no-such-needs==1"])
    monkeypatch.setattr(check_bounds, "_wanted", lambda which, wheel: check_bounds.requirements(which))
    assert check_bounds.main([]) == check_bounds.UNREACHABLE
    assert "no package index can be reached" in capsys.readouterr().err


def test_every_dependency_has_a_lower_bound() -> None:
    assert all("==" in pin for pin in check_bounds.requirements("lowest"))
    assert all(">=" in requirement for requirement in check_bounds.requirements("newest"))
