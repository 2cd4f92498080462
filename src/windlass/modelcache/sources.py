"""Places that models come from: a folder, a web server, the hub of Hugging Face."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from windlass.modelcache.folder import ModelCacheError, ModelReference

HUB = "https://huggingface.co"
"""Hub that ``hf://`` means unless the variable ``HF_ENDPOINT`` names another."""
TIMEOUT = 60.0
"""Seconds without a byte after which a request has failed."""
SCHEMES = ("file", "http", "https", "hf")


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """File of a model. ``path``: relative, with slashes. ``size``: bytes; ``None``: unknown."""

    path: str
    size: int | None


class Source(Protocol):
    """Files of one model."""

    def files(self) -> list[RemoteFile]: ...

    def open(self, path: str, offset: int) -> Any:
        """Return a context manager that gives a stream from byte ``offset`` on."""
        ...


def source_of(model: ModelReference) -> Source:
    """Return the source that the URI names. Raises :class:`ModelCacheError` (``BadSource``)."""
    uri = urllib.parse.urlsplit(model.source)
    if uri.scheme == "file":
        return FolderSource(Path(urllib.request.url2pathname(uri.path)))
    if uri.scheme in ("http", "https"):
        return WebSource(model.source)
    if uri.scheme == "hf":
        return HubSource(uri.netloc + uri.path.rstrip("/"), model.revision or "main")
    offered = ", ".join(f"{scheme}://" for scheme in SCHEMES)
    raise ModelCacheError("BadSource", f"source {model.source!r} begins with none of {offered}")


class FolderSource:
    """A file or a folder of the node, also of a mounted volume."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def files(self) -> list[RemoteFile]:
        if self.path.is_file():
            return [RemoteFile(self.path.name, self.path.stat().st_size)]
        if not self.path.is_dir():
            raise ModelCacheError("NotFound", f"{self.path} does not exist")
        found = sorted(each for each in self.path.rglob("*") if each.is_file())
        return [RemoteFile(each.relative_to(self.path).as_posix(), each.stat().st_size) for each in found]

    @contextmanager
    def open(self, path: str, offset: int) -> Iterator[IO[bytes]]:
        with (self.path if self.path.is_file() else self.path / path).open("rb") as stream:
            stream.seek(offset)
            yield stream


class WebSource:
    """One file of a web server. An interrupted transfer goes on where it stopped."""

    def __init__(self, url: str) -> None:
        self.url = url

    def files(self) -> list[RemoteFile]:
        with _request(self.url, method="HEAD") as answer:
            length = answer.headers.get("Content-Length")
        name = Path(urllib.parse.urlsplit(self.url).path).name or "model"
        return [RemoteFile(name, int(length) if length else None)]

    @contextmanager
    def open(self, path: str, offset: int) -> Iterator[IO[bytes]]:
        with _request(self.url, offset=offset) as answer:
            yield answer


class HubSource:
    """A repository of a hub of Hugging Face, by its public HTTP interface.

    ``HF_ENDPOINT`` names another hub, ``HF_TOKEN`` is the token of a private repository.
    """

    def __init__(self, repository: str, revision: str) -> None:
        self.repository, self.revision = repository, revision
        self.hub = os.environ.get("HF_ENDPOINT", HUB).rstrip("/")

    def files(self) -> list[RemoteFile]:
        with _request(
            f"{self.hub}/api/models/{self.repository}/revision/{self.revision}?blobs=true"
        ) as answer:
            found = json.load(answer)
        return [RemoteFile(each["rfilename"], each.get("size")) for each in found.get("siblings") or []]

    @contextmanager
    def open(self, path: str, offset: int) -> Iterator[IO[bytes]]:
        place = urllib.parse.quote(path)
        with _request(
            f"{self.hub}/{self.repository}/resolve/{self.revision}/{place}", offset=offset
        ) as answer:
            yield answer


def _request(url: str, *, method: str = "GET", offset: int = 0) -> Any:
    """Open a URL. A server that ignores the offset gives an error, never a wrong file."""
    request = urllib.request.Request(url, method=method)
    token = os.environ.get("HF_TOKEN", "")
    if token and url.startswith(os.environ.get("HF_ENDPOINT", HUB)):
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    if offset:
        request.add_header("Range", f"bytes={offset}-")
    try:
        answer = urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        error.close()
        reason = "NotFound" if error.code in (401, 403, 404) else "Unreachable"
        raise ModelCacheError(reason, f"{url}: status {error.code} {error.reason}") from error
    except (urllib.error.URLError, OSError) as error:
        raise ModelCacheError("Unreachable", f"{url}: {getattr(error, 'reason', error)}") from error
    if offset and answer.status != 206:
        answer.close()
        raise ModelCacheError("NoRange", f"{url}: the server does not serve a part of the file")
    return answer
