"""Reading manifests: what was meant, and where it is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.api.errors import WindlassError
from windlass.cli.manifests.read import parse, read

POD = "apiVersion: v1\nkind: Pod\nmetadata:\n  name: a\n"


def test_documents_know_their_file_and_their_lines():
    first, second = parse(POD + "---\n# nothing\n---\n" + POD, "x.yaml")
    assert (first.line, second.line) == (1, 8)
    assert second.line_of("metadata.name") == 11
    assert second.line_of("metadata.labels[0]") == 10
    assert second.where == "x.yaml:8"
    assert second.title == "Pod/a"


def test_a_list_is_taken_apart():
    text = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}}\n" \
           "- {apiVersion: v1, kind: Pod, metadata: {name: b}}\n"  # fmt: skip
    assert [d.title for d in parse(text, "x")] == ["Pod/a", "Pod/b"]


def test_scalars_are_those_of_kubernetes():
    text = POD + "spec:\n  t: 12:30:45\n  d: 2024-01-01\n  b: yes\n  o: 010\n"
    (document,) = parse(text, "x")
    assert document.obj["spec"] == {"t": "12:30:45", "d": "2024-01-01", "b": True, "o": 8}


def test_keys_given_twice_are_remembered():
    (document,) = parse(POD + "spec:\n  a: 1\n  a: 2\n", "x")
    assert document.duplicates == ("spec.a",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1,\nb", "x.yaml:3:1:"),
        ("a: b: c\n", "x.yaml:1:5:"),
        ("- 1\n", "x.yaml:1:1: a manifest is a mapping"),
        ("spec: {}\n", "has no apiVersion and no kind"),
        ("apiVersion: v1\n", "has no kind"),
        (POD.replace("\n  name: a", " 3"), "metadata is not a mapping"),
        (POD.replace("name: a", "name: y"), "x.yaml:4: metadata.name is not text, but true"),
        (
            POD.replace("name: a", "name: a\n  namespace: 7"),
            "x.yaml:5: metadata.namespace is not text, but 7",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str):
    with pytest.raises(WindlassError) as caught:
        parse(text, "x.yaml")
    assert caught.value.code == "WL-MANIFEST-400"
    assert told in caught.value.message


def test_a_tab_is_named_as_the_cause():
    with pytest.raises(WindlassError) as caught:
        parse("spec:\n\tx: 1\n", "x.yaml")
    assert caught.value.remedies == ("indent with spaces, not with tabs",)
    assert caught.value.evidence.startswith("the line is: x: 1")


def test_a_text_that_ends_too_soon_has_no_line_to_show():
    with pytest.raises(WindlassError) as caught:
        parse("spec: [\n", "x.yaml")
    assert caught.value.evidence == "the line is empty (while parsing a flow node)"


def test_folders_are_read_in_order(tmp_path: Path):
    (tmp_path / "b.yaml").write_text(POD.replace("name: a", "name: b"))
    (tmp_path / "a.json").write_text('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}')
    (tmp_path / "notes.txt").write_text("not a manifest")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "c.yml").write_text(POD.replace("name: a", "name: c"))
    assert [d.title for d in read([str(tmp_path)])] == ["Pod/a", "Pod/b"]
    assert [d.title for d in read([str(tmp_path)], recursive=True)] == ["Pod/a", "Pod/b", "Pod/c"]


def test_nothing_to_apply_is_an_error(tmp_path: Path):
    for source in (str(tmp_path), str(tmp_path / "absent.yaml")):
        with pytest.raises(WindlassError) as caught:
            read([source])
        assert caught.value.code == "WL-MANIFEST-404"


@pytest.mark.parametrize("named", ["x.yaml", ""])
def test_bytes_that_are_no_text(tmp_path: Path, named: str):
    """The file is told, also when the folder was named."""
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(WindlassError, match=r"x\.yaml is not text in UTF-8") as caught:
        read([str(tmp_path / named)])
    assert caught.value.code == "WL-MANIFEST-400"


def test_aliases_that_multiply_a_document_are_refused_at_once():
    """A billion of them in nine lines: refused as kubectl does, and not only after they are counted."""
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]" for a, b in zip("abcdefgh", "bcdefghi", strict=True)]
    with pytest.raises(WindlassError, match="x is not YAML") as caught:
        parse("\n".join(lines), "x")
    assert caught.value.evidence == "document contains excessive aliasing"


def test_a_document_that_is_nested_too_deeply_is_refused():
    with pytest.raises(WindlassError, match="x is not a manifest") as caught:
        parse(POD + "spec: " + "[" * 5000 + "]" * 5000, "x")
    assert caught.value.evidence == "the nesting is too deep"


def test_an_address_is_not_taken_for_a_file():
    with pytest.raises(WindlassError, match=r"https://example\.com/x\.yaml is not a file") as caught:
        read(["https://example.com/x.yaml"])
    assert caught.value.remedies == ("curl -fsSL https://example.com/x.yaml | windlass apply -f -",)
