"""Objects of stores such as S3, with the package obstore.

Credentials and ``AWS_ENDPOINT_URL`` come from the environment.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

_TIMEOUT = 60.0
"""Timeout of a request (seconds)."""
_RETRIES = 3
"""Maximum number of further attempts of a request."""


class ObjectError(Exception):
    """An object that cannot be read or written. ``missing``: there is none."""

    def __init__(self, message: str, *, missing: bool = False, package: bool = False) -> None:
        super().__init__(message)
        self.missing, self.package = missing, package


def is_url(text: str) -> bool:
    """Return whether a path is the address of an object."""
    from windlass.items.spec import STORES

    return text.partition("://")[0] in STORES and "://" in text


def fetch(url: str, target: Path) -> None:
    """Copy an object to a file. Raises :class:`ObjectError` or ``OSError``."""
    with _Access(url) as access, target.open("wb") as out:
        for part in access.api.get(access.store, access.key).stream(min_chunk_size=1 << 20):
            out.write(part)


def send(path: Path, url: str) -> None:
    """Copy a file to an object, which appears whole. Raises :class:`ObjectError`."""
    with _Access(url) as access:
        access.api.put(access.store, access.key, path)


def probe(url: str) -> None:
    """Try to write an object next to this one. Raises :class:`ObjectError`."""
    folder, _, name = url.rpartition("/")
    with _Access(f"{folder}/.{name}.probe") as access:
        access.api.put(access.store, access.key, b"windlass\n")
        with contextlib.suppress(Exception):  # a store may allow writes and no deletions
            access.api.delete(access.store, access.key)


def look(url: str) -> bool:
    """Return whether an object exists. Raises :class:`ObjectError` if the store does not tell."""
    try:
        with _Access(url) as access:
            access.api.head(access.store, access.key)
    except ObjectError as error:
        if not error.missing:
            raise
        return False
    return True


def delete(url: str) -> None:
    """Remove an object, if it exists. Raises :class:`ObjectError`."""
    if look(url):
        with _Access(url) as access:
            access.api.delete(access.store, access.key)


class _Access:
    """Access to one object. Errors of the package become :class:`ObjectError`."""

    def __init__(self, url: str) -> None:
        try:
            import obstore
            from obstore.store import from_url
        except ImportError:
            raise ObjectError(
                "object stores need the package obstore: pip install 'windlass[storage]' in the image of the driver",
                package=True,
            ) from None
        self.api: Any = obstore
        scheme, _, rest = url.partition("://")
        bucket, _, self.key = rest.partition("/")
        if not bucket or not self.key:
            raise ObjectError(f"{url} names no object: write {scheme or 's3'}://BUCKET/KEY")
        self._url = url
        options: dict[str, Any] = {"client_options": {"timeout": f"{_TIMEOUT:g}s"}}
        if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
            options["client_options"]["allow_http"] = True
        with self:
            self.store: Any = from_url(
                f"{scheme}://{bucket}", **options, retry_config={"max_retries": _RETRIES}
            )

    def __enter__(self) -> _Access:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from obstore.exceptions import BaseError

        if isinstance(error, BaseError | ValueError | FileNotFoundError):
            missing = isinstance(error, FileNotFoundError) or type(error).__name__ == "NotFoundError"
            why = (str(error).splitlines() or [""])[0][:300]
            raise ObjectError(why, missing=missing) from None
