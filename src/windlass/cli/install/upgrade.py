"""What stands between a cluster's Windlass and this version of it.

Reads, and writes only with :func:`migrate_storage`: it has the server store the objects of a kind anew, in the version
that is stored today, so that an older one can leave the CustomResourceDefinition. All versions of a kind share one
schema (docs/decisions/0017-versions-of-a-kind-share-one-schema.md), so that no conversion is ever asked for.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from windlass import __version__
from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, Resource, by_plural
from windlass.api.validation import structural
from windlass.api.validation.collector import Collector
from windlass.api.wire import field_review, schema
from windlass.cli.install.objects import CRD, DEPLOYMENTS, NAMESPACE, definitions
from windlass.client.blocking import BlockingClient
from windlass.client.transport import Request

Json = dict[str, Any]
STOP, NOTE, GOOD = "stop", "note", "ok"
OLDEST_KUBERNETES = (1, 30)
TOLD_OBJECTS = 3
"""So many objects are named for each field."""
_VERSION_LABEL = "app.kubernetes.io/version"


@dataclass(frozen=True, slots=True)
class UpgradeFinding:
    """``level``: :data:`STOP`, :data:`NOTE` or :data:`GOOD`. ``remedy``: empty where nothing is to be done."""

    level: str
    subject: str
    words: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"level": self.level, "subject": self.subject, "words": self.words, "remedy": self.remedy}


def check(client: BlockingClient, namespace: str = NAMESPACE) -> list[UpgradeFinding]:
    """Everything that should be known before this version is installed. Raises ``StatusError``, ``Unreachable``."""
    return [
        server(client),
        *_installed(client, namespace),
        *(finding for definition in definitions() for finding in _definition(client, definition)),
        *_configuration(client, namespace),
    ]


# ---------------------------------------------------------------------- versions


def _numbers(text: str) -> tuple[int, int]:
    """Major and minor of ``v1.36.3``, ``0.1.0``, ``36+``; zeros where there are none."""
    found = re.match(r"v?(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def server(client: BlockingClient) -> UpgradeFinding:
    """Whether this version runs on the API server's. Raises ``StatusError``, ``Unreachable``."""
    answer = msgspec.json.decode(client.call(Request("GET", "/version")))
    text = str(answer.get("gitVersion", ""))
    newest = _numbers(schema.kubernetes_version())
    if _numbers(text) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        return UpgradeFinding(STOP, "API server", f"{text}: older than {oldest}", "upgrade Kubernetes first")
    if _numbers(text) > newest:
        words = f"{text}: newer than {newest[0]}.{newest[1]}, with which this version was tested"
        return UpgradeFinding(NOTE, "API server", words, "look for a newer Windlass")
    return UpgradeFinding(GOOD, "API server", text)


def _installed(client: BlockingClient, namespace: str) -> Iterator[UpgradeFinding]:
    found = client.find(DEPLOYMENTS, "windlass-scheduler", namespace)
    if found is None:
        yield UpgradeFinding(NOTE, "Windlass", f"is not installed in {namespace}", "windlass install")
        return
    text = (found["metadata"].get("labels") or {}).get(_VERSION_LABEL, "")
    there, here = _numbers(text), _numbers(__version__)
    if there > here:
        words = f"{text} is installed, newer than this command ({__version__}): this would be a roll-back"
        yield UpgradeFinding(NOTE, "Windlass", words, "pip install --upgrade windlass")
    elif here[0] != there[0] or here[1] - there[1] > 1:
        words = f"from {text} to {__version__}: one minor version at a time is supported"
        yield UpgradeFinding(STOP, "Windlass", words, f"upgrade to {there[0]}.{there[1] + 1} first")
    else:
        yield UpgradeFinding(GOOD, "Windlass", f"from {text or 'an unknown version'} to {__version__}")


# ---------------------------------------------------------------------- kinds


def _definition(client: BlockingClient, wanted: Json) -> Iterator[UpgradeFinding]:
    name = wanted["metadata"]["name"]
    present = client.find(CRD, name)
    if present is None:
        yield UpgradeFinding(NOTE, name, "the cluster does not have it", "windlass install")
        return
    kept = {version["name"] for version in wanted["spec"]["versions"]}
    served = {version["name"] for version in present["spec"]["versions"] if version["served"]}
    stored = set((present.get("status") or {}).get("storedVersions") or ())
    gone = sorted(stored - kept)
    if gone:
        words = f"objects are stored as {', '.join(gone)}, which this version does not have"
        yield UpgradeFinding(STOP, name, words, "windlass upgrade --migrate-storage")
    dropped = sorted(served - kept)
    if dropped:
        yield UpgradeFinding(
            STOP, name, f"{', '.join(dropped)} is served now and would be no more", "use another version"
        )
    yield from _objects(client, name, present)
    yield UpgradeFinding(
        GOOD, name, f"stored as {', '.join(sorted(stored)) or '-'}, served as {', '.join(sorted(served))}"
    )


def _resource(definition: Json) -> Resource | None:
    """The kind as this version knows it, in the version that is stored."""
    spec = definition["spec"]
    version = next(one["name"] for one in spec["versions"] if one["storage"])
    return by_plural(spec["group"], version, spec["names"]["plural"])


def _objects(client: BlockingClient, name: str, present: Json) -> Iterator[UpgradeFinding]:
    """What of the objects this version's schema would refuse, or drop the next time that they are written."""
    resource = _resource(present)
    if resource is None:
        return
    refused: dict[str, list[str]] = {}
    lost: dict[str, list[str]] = {}
    for obj in client.list(resource).items:
        metadata = obj["metadata"]
        title = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        for words in _refused(resource, obj):
            refused.setdefault(words, []).append(title)
        for field in field_review.review(resource, copy.deepcopy(obj)).unknown:
            lost.setdefault(re.sub(r"\[\d+\]", "[]", field), []).append(title)
    for words, titles in sorted(refused.items()):
        yield UpgradeFinding(STOP, name, f"{words}: {_some(titles)}", "correct these objects")
    for field, titles in sorted(lost.items()):
        words = f"{field} is unknown to this version and would be dropped from {_some(titles)}"
        yield UpgradeFinding(NOTE, name, words, "take the field out, or keep it in an annotation")


def _refused(resource: Resource, obj: Json) -> Iterator[str]:
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    report = field_review.review(resource, copy.deepcopy(obj))
    yield from (str(problem) for problem in report.invalid)
    if struct is not None:
        out = Collector()
        structural.struct(struct, report.object, "", out)
        yield from (str(problem) for problem in out.errors)


def _some(titles: list[str]) -> str:
    rest = len(titles) - TOLD_OBJECTS
    return ", ".join(titles[:TOLD_OBJECTS]) + (f" and {rest} more" if rest > 0 else "")


# ---------------------------------------------------------------------- configuration


def _configuration(client: BlockingClient, namespace: str) -> Iterator[UpgradeFinding]:
    found = client.find(CONFIG_MAPS, "windlass-scheduler", namespace)
    text = ((found or {}).get("data") or {}).get("windlass.conf", "")
    if not text.strip():
        return
    from windlass.model import scheduler_config  # heavy; an upgrade alone builds an engine
    from windlass.model.cluster.engine_factory import make_engine
    from windlass.plugins import registry

    try:
        parsed = scheduler_config.parse(text)
        warned: list[str] = []
        make_engine(parsed.config, warned.append)
    except (scheduler_config.ConfigError, registry.UnknownAction, ValueError) as error:
        yield UpgradeFinding(
            STOP, "configuration", str(error), "correct it: windlass plan --config FILE tells more"
        )
        return
    notes = dict.fromkeys((*parsed.notes, *warned))
    for words in notes:
        yield UpgradeFinding(NOTE, "configuration", words)
    if not notes:
        yield UpgradeFinding(GOOD, "configuration", "every word of it is understood")


# ---------------------------------------------------------------------- storage


def migrate_storage(client: BlockingClient) -> Iterator[str]:
    """Have every object stored in today's version, kind by kind, and take the older ones off the list.

    Yields what was done. Raises ``StatusError``, ``Unreachable``. May be repeated.
    """
    for definition in definitions():
        name = definition["metadata"]["name"]
        present = client.find(CRD, name)
        stored = ((present or {}).get("status") or {}).get("storedVersions") or []
        if present is None or len(stored) < 2:
            continue
        version = next(one["name"] for one in present["spec"]["versions"] if one["storage"])
        count = _rewrite(client, _plain(present, version))
        client.patch(CRD, name, {"status": {"storedVersions": [version]}}, subresource="status")
        yield f"{name}: {count} objects stored as {version}"


def _plain(present: Mapping[str, Any], version: str) -> Resource:
    spec = present["spec"]
    names = spec["names"]
    return Resource(spec["group"], version, names["plural"], names["kind"], spec["scope"] == "Namespaced")


def _rewrite(client: BlockingClient, resource: Resource) -> int:
    """Write every object back as it is: the server stores it in its storage version."""
    found = client.list(resource).items
    for obj in found:
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        try:
            client.update(resource, whole)
        except StatusError as error:
            if error.code not in (404, 409):  # gone, or written by somebody else, and so stored anew
                raise
    return len(found)
