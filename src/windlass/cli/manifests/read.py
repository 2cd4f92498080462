"""Reading of manifests: YAML or JSON, several documents, files, directories, standard input.

Every document knows its file and the line of each field, for error messages. Scalars
are read as in Kubernetes (:mod:`windlass.api.wire.yaml_text`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from windlass.api.errors import WindlassError
from windlass.api.text_files import STDIN, STDIN_WORDS, FileCodes, read_stdin, read_text, unread
from windlass.api.wire.yaml_text import YamlError, build, positions

_CODES = FileCodes("WL-MANIFEST-400", missing="WL-MANIFEST-404", unreadable="WL-MANIFEST-403")
_SUFFIXES = (".yaml", ".yml", ".json")


@dataclass(slots=True)
class Document:
    """One object of a manifest. ``lines``: field path → line, counted from 1."""

    obj: dict[str, Any]
    source: str
    line: int
    lines: Mapping[str, int] = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()
    """Paths of duplicate keys (the last one counts)."""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    @property
    def title(self) -> str:
        metadata = self.obj.get("metadata") or {}
        return f"{self.obj.get('kind')}/{metadata.get('name') or metadata.get('generateName', '')}"

    def line_of(self, path: str) -> int:
        """Return the line of a field, or of its nearest parent.

        ``path``: such as ``spec.tasks[0].replicas``.
        """
        while path:
            if path in self.lines:
                return self.lines[path]
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return self.line


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(sources: Sequence[str], *, recursive: bool = False) -> list[Document]:
    """Return all documents of files, directories and ``-``.

    Raises :class:`WindlassError` with file, line and column.
    """
    documents: list[Document] = []
    for source in sources:
        for name, text in _texts(source, recursive):
            documents += parse(text, name)
    if not documents:
        raise WindlassError(
            "WL-MANIFEST-404",
            "no objects found in " + ", ".join(sources),
            evidence="a manifest has apiVersion and kind; in a directory *.yaml, *.yml and *.json are read",
            remedies=("-R   (also reads subdirectories)",),
        )
    return documents


def _texts(source: str, recursive: bool) -> Iterator[tuple[str, str]]:
    if source == STDIN:
        yield STDIN_WORDS, read_stdin(_CODES)
        return
    if "://" in source and not os.path.exists(source):
        raise WindlassError(
            _CODES.missing,
            f"{source} is not a file",
            evidence="manifests are read from files, directories and standard input, not from URLs",
            remedies=(f"curl -fsSL {source} | windlass apply -f -",),
        )
    for file in _manifests_in(source, recursive) if os.path.isdir(source) else [source]:
        yield file, read_text(file, _CODES)


def _manifests_in(directory: str, recursive: bool) -> list[str]:
    """Return the manifests in a directory, in order. Raises :class:`WindlassError`."""

    def reject(error: OSError) -> None:
        raise unread(str(error.filename), error, _CODES) from error

    files: list[Path] = []
    for parent, subdirectories, names in os.walk(directory, onerror=reject):
        files += [Path(parent, name) for name in names]
        if not recursive:
            subdirectories.clear()
    return [str(file) for file in sorted(files) if file.suffix in _SUFFIXES and file.is_file()]


def parse(text: str, source: str) -> list[Document]:
    """Return the documents of a text, with the items of a ``List``.

    Raises :class:`WindlassError`.
    """
    documents: list[Document] = []
    loader = _Loader(text)
    try:
        while loader.check_node():
            node = loader.get_node()
            documents += _documents(node, source)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, source) from error
    except (yaml.YAMLError, YamlError) as error:
        raise WindlassError(
            "WL-MANIFEST-400", f"{source} is not YAML", evidence=" ".join(str(error).split())
        ) from error
    except RecursionError:
        raise WindlassError(
            "WL-MANIFEST-400", f"{source} is not a manifest", evidence="the nesting is too deep"
        ) from None
    finally:
        loader.dispose()
    return documents


def _documents(node: Any, source: str) -> Iterator[Document]:
    line = int(node.start_mark.line) + 1
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return  # an empty document
    if not isinstance(node, yaml.MappingNode):
        raise _bad(source, node, "a manifest is a mapping with apiVersion, kind and metadata")
    obj, duplicates = build(node)  # first, as it limits the expansion of aliases
    lines = positions(node)
    if isinstance(obj.get("items"), list) and str(obj.get("kind", "")).endswith("List"):
        for at, item in enumerate(obj["items"]):
            prefix = f"items[{at}]"
            inner = {
                path.removeprefix(prefix + "."): number
                for path, number in lines.items()
                if path.startswith(prefix + ".")
            }
            yield _checked(Document(item, source, lines.get(prefix, line), inner), node)
        return
    yield _checked(Document(obj, source, line, lines, tuple(duplicates)), node)


def _checked(document: Document, node: Any) -> Document:
    obj = document.obj
    if not isinstance(obj, dict):
        raise _bad(document.source, node, "an item of the list is not an object")
    absent = [name for name in ("apiVersion", "kind") if not isinstance(obj.get(name), str)]
    if absent:
        raise WindlassError(
            "WL-MANIFEST-400",
            f"{document.where}: the document has no {' and no '.join(absent)}",
            evidence="its keys: " + ", ".join(map(str, list(obj)[:8])),
            remedies=("add apiVersion and kind   (a fragment must be merged into a whole object first)",),
        )
    if not isinstance(obj.get("metadata", {}), dict):
        raise _bad(document.source, node, "metadata is not a mapping")
    for name in ("name", "namespace", "generateName"):
        value = (obj.get("metadata") or {}).get(name)
        if value is not None and not isinstance(value, str):
            line = document.line_of(f"metadata.{name}")
            raise WindlassError(
                "WL-MANIFEST-400",
                f"{document.source}:{line}: metadata.{name} is not text, but {msgspec.json.encode(value).decode()}",
                evidence="YAML does not read y, yes, on, no and numbers as text",
                remedies=("put the value in quotes",),
            )
    return document


def _bad(source: str, node: Any, why: str) -> WindlassError:
    mark = node.start_mark
    return WindlassError("WL-MANIFEST-400", f"{source}:{mark.line + 1}:{mark.column + 1}: {why}")


def _syntax_error(error: yaml.MarkedYAMLError, text: str, source: str) -> WindlassError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line, mark.column) if mark is not None else (0, 0)
    lines = text.split("\n")
    read = lines[line] if line < len(lines) else ""
    shown = f"the line is: {read.strip()[:100]}" if read.strip() else "the line is empty"
    hint = "indent with spaces, not with tabs" if "\t" in read else ""
    return WindlassError(
        "WL-MANIFEST-400",
        f"{source}:{line + 1}:{column + 1}: {error.problem or 'not YAML'}",
        evidence=shown + (f" ({error.context})" if error.context else ""),
        remedies=(hint,) if hint else (),
    )
