"""Checks of artifacts: places from which none can be fetched, and fields that a place needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from windlass.workflow.keys import has_key_alone

Json = Mapping[str, Any]
FETCHED = ("http", "s3", "git")
"""Places from which input artifacts are fetched."""
_REFUSED = ("gcs", "oss", "azure", "hdfs", "artifactory")
_NEEDED = {"http": ("url",), "s3": ("endpoint", "bucket", "key"), "git": ("repo",)}


def sent_to(artifact: Json) -> str:
    """Return where an output artifact is sent: ``s3``, ``http``, or empty for the store of this platform."""
    for place in ("s3", "http"):
        target = artifact.get(place)
        if isinstance(target, Mapping) and all(target.get(field) for field in _NEEDED[place]):
            return place
    return ""


def artifact_problems(template: Json) -> Iterator[tuple[str, Any, str]]:
    """Yield what is wrong with the artifacts of a template: field, value, message."""
    for side in ("inputs", "outputs"):
        for at, artifact in enumerate((template.get(side) or {}).get("artifacts") or ()):
            url = str((artifact.get("http") or {}).get("url") or "")
            if url and "{{" not in url and urlsplit(url).scheme not in ("http", "https"):
                text = "an address that begins with http:// or https:// is expected"
                yield f".{side}.artifacts[{at}].http.url", url, text
    yield from _input_problems(template)


def _input_problems(template: Json) -> Iterator[tuple[str, Any, str]]:
    for at, artifact in enumerate((template.get("inputs") or {}).get("artifacts") or ()):
        path = f".inputs.artifacts[{at}]"
        if artifact.get("store") or artifact.get("raw"):
            continue
        if has_key_alone(artifact):
            continue
        for place in _REFUSED:
            if artifact.get(place):
                text = f"artifacts are fetched from {', '.join(FETCHED)}, or are raw: fetch this one in a container"
                yield f"{path}.{place}", artifact.get("name"), text
        for place, fields in _NEEDED.items():
            source = artifact.get(place)
            for field in fields if isinstance(source, Mapping) else ():
                if not source.get(field):
                    yield (
                        f"{path}.{place}.{field}",
                        None,
                        "this field is needed: no repository is configured elsewhere",
                    )
        if (artifact.get("git") or {}).get("sshPrivateKeySecret"):
            text = "keys of SSH are not used: give an https address with usernameSecret and passwordSecret"
            yield f"{path}.git.sshPrivateKeySecret", artifact.get("name"), text
