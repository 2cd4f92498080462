"""The generated reference pages are what the code says, and every error code is documented."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    path = ROOT / "tools" / "reference" / "generate.py"
    spec = importlib.util.spec_from_file_location("reference_generator", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_fresh(generator: ModuleType):
    assert generator.stale() == [], "run: make docs"


def test_a_change_is_noticed(generator: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(generator, "FOLDER", tmp_path)
    assert set(generator.stale()) == set(generator.PAGES)
    for name, page in generator.PAGES.items():
        (tmp_path / name).write_text(page())
    assert generator.stale() == []
    (tmp_path / "errors.md").write_text("old")
    assert generator.stale() == ["errors.md"]


def test_every_code_in_the_source_is_documented():
    from windlass.api.error_codes import CODES

    found = {
        code
        for path in (ROOT / "src" / "windlass").rglob("*.py")
        for code in re.findall(r"\bWL-[A-Z0-9]+-[A-Z0-9-]*[A-Z0-9]\b", path.read_text())
    } - {"WL-SUBJECT-NUMBER"}
    assert found <= set(CODES), f"undocumented: {sorted(found - set(CODES))}"


def test_texts_are_sentences():
    from windlass.api.error_codes import CODES, EXIT_MEANINGS

    for code in CODES.values():
        assert code.text.endswith((".", "?")), code.code
        assert not code.title.endswith("."), code.code
        assert code.exit_status in EXIT_MEANINGS, code.code


def test_every_kind_and_reason_is_on_its_page(generator: ModuleType):
    from windlass.api.reasons import Reason
    from windlass.api.resources import ALL

    kinds, reasons = generator.kinds(), generator.reasons()
    assert all(f"| {resource.kind} | `{resource.api_version}` |" in kinds for resource in ALL)
    assert all(f"| `{reason.value}` |" in reasons for reason in Reason)


def test_every_label_and_annotation_has_a_text_of_its_own(generator: ModuleType):
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", generator.wire_names(), re.MULTILINE)
    texts = dict(rows)
    assert len(texts) == len(rows) == len(set(texts.values()))
    assert all(len(text) > 20 for text in texts.values()), texts
    assert {"windlass.dev/isolation", "windlass.dev/limits", "windlass.dev/outbound"} <= set(texts)


def test_own_wire_names_are_spelled_in_one_place():
    """A name of ours that stands elsewhere in the source would be missing on the page. Policies may not import
    the wire's names: they repeat those of the page."""
    source = ROOT / "src" / "windlass"
    known = set(re.findall(r'"(windlass\.dev/[a-z-]+)"', (source / "api" / "annotations.py").read_text()))
    stray = {
        f"{path.relative_to(source)}: {name}"
        for path in source.rglob("*.py")
        if path != source / "api" / "annotations.py"
        for name in re.findall(r'"(windlass\.dev/[a-z-]+)"', path.read_text())
        if name not in known or source / "plugins" not in path.parents
    }
    assert stray == set()
