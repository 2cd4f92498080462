"""Reading manifests: YAML or JSON, several documents, files, folders, standard input.

Every document knows its file and the line of each field, so that whatever is wrong with it can be
pointed at. Scalars are read as Kubernetes reads them (:mod:`windlass.api.wire.yaml_text`).
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
    """Paths of keys that are given twice (the last one counts)."""

    @property
    def where(self) -> str:
        return f"{self.source}:{self.line}"

    @property
    def title(self) -> str:
        metadata = self.obj.get("metadata") or {}
        return f"{self.obj.get('kind')}/{metadata.get('name') or metadata.get('generateName', '')}"

    def line_of(self, path: str) -> int:
        """The line of a field path such as ``spec.tasks[0].replicas``, or of its nearest parent."""
        while path:
            if path in self.lines:
                return self.lines[path]
            cut = max(path.rfind("."), path.rfind("["))
            path = path[:cut] if cut > 0 else ""
        return self.line


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(sources: Sequence[str], *, recursive: bool = False) -> list[Document]:
    """All documents of files, folders and ``-``. Raises :class:`WindlassError` with file, line and column."""
    documents: list[Document] = []
    for source in sources:
        for name, text in _texts(source, recursive):
            documents += parse(text, name)
    if not documents:
        raise WindlassError(
            "WL-MANIFEST-404",
            "there is no object in " + ", ".join(sources),
            evidence="a manifest has apiVersion and kind; of a folder, *.yaml, *.yml and *.json are read",
            remedies=("-R reads the folders below, too",),
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
            evidence="manifests are read from files, folders and standard input, not fetched",
            remedies=(f"curl -fsSL {source} | windlass apply -f -",),
        )
    for file in _manifests_in(source, recursive) if os.path.isdir(source) else [source]:
        yield file, read_text(file, _CODES)


def _manifests_in(folder: str, recursive: bool) -> list[str]:
    """The files of a folder that are read, in order. Raises :class:`WindlassError`."""

    def refuse(error: OSError) -> None:
        raise unread(str(error.filename), error, _CODES) from error

    found: list[Path] = []
    for place, below, names in os.walk(folder, onerror=refuse):
        found += [Path(place, name) for name in names]
        if not recursive:
            below.clear()
    return [str(file) for file in sorted(found) if file.suffix in _SUFFIXES and file.is_file()]


def parse(text: str, source: str) -> list[Document]:
    """The documents of one text; a ``List`` is taken apart. Raises :class:`WindlassError`."""
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
            "WL-MANIFEST-400", f"{source} is not a manifest", evidence="it is nested too deeply"
        ) from None
    finally:
        loader.dispose()
    return documents


def _documents(node: Any, source: str) -> Iterator[Document]:
    line = int(node.start_mark.line) + 1
    if isinstance(node, yaml.ScalarNode) and not node.value:
        return  # nothing between two separators
    if not isinstance(node, yaml.MappingNode):
        raise _bad(source, node, "a manifest is a mapping with apiVersion, kind and metadata")
    obj, duplicates = build(node)  # first: it bounds what aliases may grow to
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
            remedies=("add apiVersion and kind; a fragment has to be merged into a whole object first",),
        )
    if not isinstance(obj.get("metadata", {}), dict):
        raise _bad(document.source, node, "metadata is not a mapping")
    for name in ("name", "namespace", "generateName"):
        value = (obj.get("metadata") or {}).get(name)
        if value is not None and not isinstance(value, str):
            line = document.line_of(f"metadata.{name}")
            raise WindlassError(
                "WL-MANIFEST-400",
                f"{document.source}:{line}: metadata.{name} is no text, but {msgspec.json.encode(value).decode()}",
                evidence="YAML reads y, yes, on, no and numbers as something else than words",
                remedies=("put it in quotes",),
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
    shown = f"the line reads: {read.strip()[:100]}" if read.strip() else "nothing is there"
    hint = "indent with spaces, not with tabs" if "\t" in read else ""
    return WindlassError(
        "WL-MANIFEST-400",
        f"{source}:{line + 1}:{column + 1}: {error.problem or 'not YAML'}",
        evidence=shown + (f" ({error.context})" if error.context else ""),
        remedies=(hint,) if hint else (),
    )
