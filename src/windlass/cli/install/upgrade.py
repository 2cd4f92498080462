"""Obstacles between the Windlass of a cluster and this version.

Only :func:`migrate_storage` writes. It lets the server store the objects of a kind
again, in the current storage version. Then an older version can be removed from the
CustomResourceDefinition. All versions of a kind share one schema
(docs/decisions/0017-versions-of-a-kind-share-one-schema.md), so no conversion is
needed.
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
from windlass.api.resources import CONFIG_MAPS, DEPLOYMENTS, Resource, by_plural
from windlass.api.validation import structural
from windlass.api.validation.collector import Collector
from windlass.api.wire import field_review, schema
from windlass.cli.install.objects import CRD, NAMESPACE, definitions
from windlass.client.blocking import BlockingClient
from windlass.client.transport import Request
from windlass.kits.installation import upgrade_command

Json = dict[str, Any]
STOP, NOTE, GOOD = "stop", "note", "ok"
OLDEST_KUBERNETES = (1, 30)
MAX_SHOWN_OBJECTS = 3
"""Maximum number of objects that are named for each field."""
_VERSION_LABEL = "app.kubernetes.io/version"


@dataclass(frozen=True, slots=True)
class UpgradeFinding:
    """One finding.

    ``level``: :data:`STOP`, :data:`NOTE` or :data:`GOOD`. ``remedy``: empty if none is
    needed.
    """

    level: str
    subject: str
    words: str
    remedy: str = ""

    def as_dict(self) -> dict[str, str]:
        return {"level": self.level, "subject": self.subject, "words": self.words, "remedy": self.remedy}


def check(client: BlockingClient, namespace: str = NAMESPACE) -> list[UpgradeFinding]:
    """Return all findings before an upgrade.

    Raises ``StatusError`` and ``Unreachable``.
    """
    return [
        server(client),
        *_installed(client, namespace),
        *(finding for definition in definitions() for finding in _definition(client, definition)),
        *_configuration(client, namespace),
    ]


# ---------------------------------------------------------------------- versions


def _numbers(text: str) -> tuple[int, int]:
    """Return major and minor of ``v1.36.3``, ``0.1.0``, ``36+``; zeros if there are none."""
    match = re.match(r"v?(\d+)(?:\.(\d+))?", text)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def server(client: BlockingClient) -> UpgradeFinding:
    """Check the version of the API server. Raises ``StatusError`` and ``Unreachable``."""
    version = msgspec.json.decode(client.call(Request("GET", "/version")))
    text = str(version.get("gitVersion", ""))
    newest = _numbers(schema.kubernetes_version())
    if _numbers(text) < OLDEST_KUBERNETES:
        oldest = ".".join(map(str, OLDEST_KUBERNETES))
        return UpgradeFinding(
            STOP, "API server", f"{text} is older than {oldest}", "upgrade Kubernetes first"
        )
    if _numbers(text) > newest:
        words = f"{text} is newer than {newest[0]}.{newest[1]}, with which this version was tested"
        return UpgradeFinding(NOTE, "API server", words, "check for a newer version of Windlass")
    return UpgradeFinding(GOOD, "API server", text)


def _installed(client: BlockingClient, namespace: str) -> Iterator[UpgradeFinding]:
    found = client.find(DEPLOYMENTS, "windlass-scheduler", namespace)
    if found is None:
        yield UpgradeFinding(NOTE, "Windlass", f"is not installed in {namespace}", "windlass install")
        return
    text = (found["metadata"].get("labels") or {}).get(_VERSION_LABEL, "")
    installed, own = _numbers(text), _numbers(__version__)
    if installed > own:
        words = (
            f"{text} is installed, which is newer than this command ({__version__}): this would be a rollback"
        )
        yield UpgradeFinding(NOTE, "Windlass", words, upgrade_command())
    elif own[0] != installed[0] or own[1] - installed[1] > 1:
        words = f"from {text} to {__version__}: one minor version at a time is supported"
        yield UpgradeFinding(STOP, "Windlass", words, f"upgrade to {installed[0]}.{installed[1] + 1} first")
    else:
        yield UpgradeFinding(GOOD, "Windlass", f"from {text or 'an unknown version'} to {__version__}")


# ---------------------------------------------------------------------- kinds


def _definition(client: BlockingClient, wanted: Json) -> Iterator[UpgradeFinding]:
    name = wanted["metadata"]["name"]
    present = client.find(CRD, name)
    if present is None:
        yield UpgradeFinding(NOTE, name, "the cluster does not have it", "windlass install")
        return
    versions = {version["name"] for version in wanted["spec"]["versions"]}
    served = {version["name"] for version in present["spec"]["versions"] if version["served"]}
    stored = set((present.get("status") or {}).get("storedVersions") or ())
    removed = sorted(stored - versions)
    if removed:
        words = f"objects are stored as {', '.join(removed)}, which this version does not have"
        yield UpgradeFinding(STOP, name, words, "windlass upgrade --migrate-storage")
    dropped = sorted(served - versions)
    if dropped:
        yield UpgradeFinding(
            STOP,
            name,
            f"{', '.join(dropped)} is served now, and would no longer be served",
            "use another version",
        )
    yield from _objects(client, name, present)
    yield UpgradeFinding(
        GOOD, name, f"stored as {', '.join(sorted(stored)) or '-'}, served as {', '.join(sorted(served))}"
    )


def _resource(definition: Json) -> Resource | None:
    """Return the kind in its storage version, as this version knows it."""
    spec = definition["spec"]
    version = next(entry["name"] for entry in spec["versions"] if entry["storage"])
    return by_plural(spec["group"], version, spec["names"]["plural"])


def _objects(client: BlockingClient, name: str, present: Json) -> Iterator[UpgradeFinding]:
    """Yield fields of objects that this version would reject, or drop at the next write."""
    resource = _resource(present)
    if resource is None:
        return
    rejected: dict[str, list[str]] = {}
    dropped: dict[str, list[str]] = {}
    for obj in client.list(resource).items:
        metadata = obj["metadata"]
        title = "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
        for words in _rejected(resource, obj):
            rejected.setdefault(words, []).append(title)
        for field in field_review.review(resource, copy.deepcopy(obj)).unknown:
            dropped.setdefault(re.sub(r"\[\d+\]", "[]", field), []).append(title)
    for words, titles in sorted(rejected.items()):
        yield UpgradeFinding(STOP, name, f"{words}: {_some(titles)}", "correct these objects")
    for field, titles in sorted(dropped.items()):
        words = f"{field} is unknown to this version and would be dropped from {_some(titles)}"
        yield UpgradeFinding(NOTE, name, words, "remove the field, or store it in an annotation")


def _rejected(resource: Resource, obj: Json) -> Iterator[str]:
    struct = schema.for_kind(resource.group, resource.version, resource.kind)
    report = field_review.review(resource, copy.deepcopy(obj))
    yield from (str(problem) for problem in report.invalid)
    if struct is not None:
        out = Collector()
        structural.struct(struct, report.object, "", out)
        yield from (str(problem) for problem in out.errors)


def _some(titles: list[str]) -> str:
    rest = len(titles) - MAX_SHOWN_OBJECTS
    return ", ".join(titles[:MAX_SHOWN_OBJECTS]) + (f" and {rest} more" if rest > 0 else "")


# ---------------------------------------------------------------------- configuration


def _configuration(client: BlockingClient, namespace: str) -> Iterator[UpgradeFinding]:
    found = client.find(CONFIG_MAPS, "windlass-scheduler", namespace)
    text = ((found or {}).get("data") or {}).get("windlass.conf", "")
    if not text.strip():
        return
    from windlass.model import scheduler_config  # large imports, needed only here
    from windlass.model.cluster.engine_factory import make_engine
    from windlass.plugins import registry

    try:
        parsed = scheduler_config.parse(text)
        warned: list[str] = []
        make_engine(parsed.config, warned.append)
    except (scheduler_config.ConfigError, registry.UnknownAction, ValueError) as error:
        yield UpgradeFinding(
            STOP, "configuration", str(error), "correct it   (windlass plan --config FILE shows details)"
        )
        return
    notes = dict.fromkeys((*parsed.notes, *warned))
    for words in notes:
        yield UpgradeFinding(NOTE, "configuration", words)
    if not notes:
        yield UpgradeFinding(GOOD, "configuration", "all settings are valid")


# ---------------------------------------------------------------------- storage


def migrate_storage(client: BlockingClient) -> Iterator[str]:
    """Store every object in the current version, kind by kind, and drop the older versions.

    Yields what was done. May be repeated. Raises ``StatusError`` and ``Unreachable``.
    """
    for definition in definitions():
        name = definition["metadata"]["name"]
        present = client.find(CRD, name)
        stored = ((present or {}).get("status") or {}).get("storedVersions") or []
        if present is None or len(stored) < 2:
            continue
        version = next(entry["name"] for entry in present["spec"]["versions"] if entry["storage"])
        count = _rewrite(client, _plain(present, version))
        client.patch(CRD, name, {"status": {"storedVersions": [version]}}, subresource="status")
        yield f"{name}: {count} objects stored as {version}"


def _plain(present: Mapping[str, Any], version: str) -> Resource:
    spec = present["spec"]
    names = spec["names"]
    return Resource(spec["group"], version, names["plural"], names["kind"], spec["scope"] == "Namespaced")


def _rewrite(client: BlockingClient, resource: Resource) -> int:
    """Write every object back unchanged, so that the server stores it in its storage version."""
    items = client.list(resource).items
    for obj in items:
        full_object = {"apiVersion": resource.api_version, "kind": resource.kind, **obj}
        try:
            client.update(resource, full_object)
        except StatusError as error:
            if error.code not in (404, 409):  # deleted, or stored again by another client
                raise
    return len(items)
