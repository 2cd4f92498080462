"""Commands that install extras, by the origin of the installation."""

from __future__ import annotations

import json
from importlib import metadata
from pathlib import Path

import pytest

from windlass.kits import installation


class Installed:
    requires = ("pyyaml>=6.0", "matplotlib>=3.9; extra == 'plots'", 'h2>=4.1; extra == "grpc"')

    def __init__(self, origin: str | None, editable: bool) -> None:
        document = {"url": origin, "dir_info": {"editable": True} if editable else {}}
        self.text = json.dumps(document) if origin is not None else None

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.text


@pytest.mark.parametrize(
    ("origin", "editable", "extra", "upgrade"),
    [
        ("file://{here}", False, "pip install '.[plots]'", "pip install --upgrade ."),
        (
            "file://{checkout}",
            False,
            "pip install '{checkout}[plots]'",
            "pip install --upgrade '{checkout}'",
        ),
        ("file://{checkout}", True, "pip install 'matplotlib>=3.9'", "git -C '{checkout}' pull"),
        ("file:///gone", False, "pip install 'matplotlib>=3.9'", "pip install --upgrade windlass"),
        ("https://x.example/w.whl", False, "pip install 'matplotlib>=3.9'", "pip install --upgrade windlass"),
        (None, False, "pip install 'matplotlib>=3.9'", "pip install --upgrade windlass"),
    ],
)
def test_commands_fit_the_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str, editable: bool, extra: str, upgrade: str
) -> None:
    places = {"here": str(tmp_path / "here"), "checkout": str(tmp_path / "my checkout")}
    for place in places.values():
        Path(place).mkdir()
        (Path(place) / "pyproject.toml").touch()
    monkeypatch.chdir(places["here"])
    found = Installed(origin and origin.format(**places).replace(" ", "%20"), editable)
    monkeypatch.setattr(metadata, "distribution", lambda _: found)
    installation._origin.cache_clear()
    try:
        assert installation.extra_command("plots") == extra.format(**places)
        assert installation.upgrade_command() == upgrade.format(**places)
    finally:
        installation._origin.cache_clear()
