"""Apply of documents: creation, three-way merge, and the check for ``--strict``."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api.annotations import LAST_APPLIED
from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, NAMESPACES, QUEUES, Resource, by_kind
from windlass.cli.errors import translate
from windlass.cli.invocation import Invocation
from windlass.cli.manifests import served_kinds
from windlass.cli.manifests.read import Document
from windlass.cli.manifests.served_kinds import ClientSource
from windlass.cli.manifests.three_way import merge_patch, strategic_patch
from windlass.cli.manifests.wrong_types import WrongType, wrong_types
from windlass.client.blocking import BlockingClient

REJECTED_WHEN_STRICT = ("alias:", "default:", "unknown field", "duplicate field")
_MANAGER = "windlass-apply"
NONE, SERVER, CLIENT = "none", "server", "client"
"""Component that checks a dry run, in kubectl's words."""


@dataclass(slots=True)
class ApplyResult:
    """Result for one document.

    ``action``: created, configured, unchanged; valid, if no server was involved.
    """

    document: Document
    resource: Resource
    action: str
    obj: dict[str, Any]
    warnings: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        kind = self.resource.singular
        group = f".{self.resource.group}" if self.resource.group else ""
        return f"{kind}{group}/{self.obj['metadata']['name']}"


@dataclass(slots=True)
class ManifestProblem:
    """Reason why a document is rejected, with its line."""

    document: Document
    text: str

    def __str__(self) -> str:
        return f"{self.document.where} {self.document.title}: {self.text}"


class Applier:
    """Applies documents one by one, and collects the server's warnings per document."""

    def __init__(self, invocation: Invocation, *, strict: bool, dry_run: str) -> None:
        self._invocation = invocation
        self._validation = "Strict" if strict else "Warn"
        self._dry_run = dry_run

    def apply(self, document: Document) -> ApplyResult:
        """Apply one document.

        Raises :class:`WindlassError`, which names it, and ``Unreachable``.
        """
        resource = resource_of(document, self._served)
        sent, warnings = self._prepared(document, resource), list[str]()
        try:
            if self._dry_run == CLIENT:
                warnings += _check(resource, sent, self._validation)
                result = ApplyResult(document, resource, "valid", sent)
            else:
                result = self._ask(document, resource, sent, self._dry_run == SERVER, warnings)
        except StatusError as error:
            client = None if self._dry_run == CLIENT else self._invocation.client
            raise refusal(document, resource, error, client) from error
        result.warnings = [*warnings, *_duplicates(document)]
        return result

    def _ask(
        self, document: Document, resource: Resource, obj: dict[str, Any], dry_run: bool, warnings: list[str]
    ) -> ApplyResult:
        """Call :meth:`_write`, and add the server's warnings to ``heard``.

        Raises ``StatusError`` and ``Unreachable``.
        """
        client = self._invocation.client
        client.on_warning = warnings.append
        try:
            return self._write(document, resource, obj, dry_run)
        finally:
            client.on_warning = self._invocation.warn

    def rehearse(self, documents: Sequence[Document]) -> list[ManifestProblem]:
        """Return what ``--strict`` rejects, by a dry run of every document.

        Nothing is written.

        Objects that earlier documents would create (namespaces, queues) do not exist
        yet. A document that needs one is checked with an object that always exists.
        """
        problems: list[ManifestProblem] = []
        upcoming = {(d.obj.get("kind"), (d.obj.get("metadata") or {}).get("name")) for d in documents}
        declared = _declared(documents)
        for document in documents:
            if (document.obj.get("apiVersion"), document.obj.get("kind")) in declared:
                continue  # its kind does not exist before the documents are applied
            resource = resource_of(document, self._served)
            warnings: list[str] = []
            sent = self._prepared(document, resource)
            try:
                if self._dry_run == CLIENT:
                    _check(resource, sent, self._validation)
                else:
                    self._ask(
                        document, resource, self._with_existing(sent, resource, upcoming), True, warnings
                    )
            except StatusError as error:
                problems.append(ManifestProblem(document, _plain_text(error)))
            texts = [*warnings, *_duplicates(document)]
            problems += [
                ManifestProblem(document, text) for text in texts if text.startswith(REJECTED_WHEN_STRICT)
            ]
        return problems

    @property
    def _served(self) -> ClientSource | None:
        return None if self._dry_run == CLIENT else lambda: self._invocation.client

    def _prepared(self, document: Document, resource: Resource) -> dict[str, Any]:
        """Return the object to send, with its namespace, and with the manifest as an annotation."""
        obj = copy.deepcopy(document.obj)
        metadata = obj.setdefault("metadata", {})
        if resource.namespaced:
            self._check_namespace(document, metadata)
            metadata.setdefault("namespace", self._invocation.home_namespace)
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name"):
            return obj
        plain = copy.deepcopy(obj)
        (plain["metadata"].get("annotations") or {}).pop(LAST_APPLIED, None)
        if metadata.get("annotations") is None:
            metadata["annotations"] = {}
        text = msgspec.json.encode(plain, order="sorted").decode() + "\n"
        metadata["annotations"][LAST_APPLIED] = text
        return obj

    def _check_namespace(self, document: Document, metadata: dict[str, Any]) -> None:
        requested, own = self._invocation.namespace, metadata.get("namespace")
        if requested and own and requested != own:
            raise WindlassError(
                "WL-MANIFEST-422",
                f"{document.where}: {document.title} belongs to namespace {own}, not {requested}",
                evidence="the namespace in the manifest differs from that of -n",
                remedies=(f"windlass apply -n {own} …", "remove metadata.namespace from the manifest"),
            )

    @staticmethod
    def _with_existing(
        obj: dict[str, Any], resource: Resource, coming: set[tuple[Any, Any]]
    ) -> dict[str, Any]:
        metadata, spec = obj["metadata"], obj.get("spec")
        if resource.namespaced and (NAMESPACES.kind, metadata.get("namespace")) in coming:
            metadata["namespace"] = "default"
        if isinstance(spec, dict):
            if (QUEUES.kind, spec.get("queue")) in coming:
                spec["queue"] = "default"
            if resource is QUEUES and (QUEUES.kind, spec.get("parent")) in coming:
                spec["parent"] = "root"
        return obj

    def _write(
        self, document: Document, resource: Resource, obj: dict[str, Any], dry_run: bool
    ) -> ApplyResult:
        client = self._invocation.client
        metadata = obj["metadata"]
        name, namespace = metadata.get("name"), metadata.get("namespace")
        live = client.find(resource, name, namespace) if name else None
        if live is None:
            created = client.create(
                resource,
                obj,
                namespace,
                dry_run=dry_run,
                field_validation=self._validation,
                field_manager=_MANAGER,
            )
            return ApplyResult(document, resource, "created", created)
        patch = _patch(resource, live, obj)
        if not patch:
            return ApplyResult(document, resource, "unchanged", live)
        changed = client.patch(
            resource,
            str(name),
            patch,
            namespace,
            kind="merge" if resource.custom else "strategic",
            field_validation=self._validation,
            field_manager=_MANAGER,
            dry_run=dry_run,
        )
        same = changed["metadata"].get("resourceVersion") == live["metadata"].get("resourceVersion")
        return ApplyResult(document, resource, "unchanged" if same and not dry_run else "configured", changed)


def _check(resource: Resource, obj: dict[str, Any], validation: str) -> list[str]:
    """Check names, fields and types without a server, and return warnings.

    Raises ``StatusError``, as a server would.
    """
    from windlass.api import errors
    from windlass.api.validation import metadata
    from windlass.api.validation.collector import Collector
    from windlass.api.wire import field_review

    report = field_review.review(resource, copy.deepcopy(obj))
    warned = field_review.enforce(resource, report, validation)
    collector = Collector()
    metadata.validate(resource, report.object, None, collector)
    if collector.errors:
        raise errors.invalid(resource, str(obj["metadata"].get("name") or ""), collector.errors)
    return warned


def _patch(resource: Resource, live: dict[str, Any], modified: dict[str, Any]) -> dict[str, Any]:
    original: dict[str, Any] = {}
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if text:
        try:
            original = msgspec.json.decode(text)
        except msgspec.DecodeError:
            original = {}  # another tool wrote it, so removed fields are unknown
    modified = {key: value for key, value in modified.items() if key not in ("apiVersion", "kind", "status")}
    original = {key: value for key, value in original.items() if key not in ("apiVersion", "kind", "status")}
    if not resource.custom:
        from windlass.api.wire import schema

        struct = schema.for_kind(resource.group, resource.version, resource.kind)
        if struct is not None:
            return strategic_patch(struct, original, modified, live)
    return merge_patch(original, modified, live)


_SHOWN_PROBLEMS = 8
_GROUP_TYPO = 0.85
"""Minimum similarity of two API groups (0 to 1), from which one counts as a misspelling of the other."""


def _declared(documents: Sequence[Document]) -> set[tuple[str, str]]:
    """Return (apiVersion, kind) of the kinds that CustomResourceDefinitions among the documents declare."""
    found = set()
    for document in documents:
        spec = document.obj.get("spec") or {}
        if document.obj.get("kind") == CUSTOM_RESOURCE_DEFINITIONS.kind and isinstance(spec, dict):
            kind = (spec.get("names") or {}).get("kind")
            versions = (version.get("name") for version in spec.get("versions") or ())
            found |= {(f"{spec.get('group')}/{version}", kind) for version in versions}
    return found


def resource_of(document: Document, client: ClientSource | None = None) -> Resource:
    """Return the kind. Raises :class:`WindlassError` if it is unknown.

    ``client``: also look for a kind that only the server knows.
    """
    version, kind = document.obj["apiVersion"], document.obj["kind"]
    resource = by_kind(version, kind)
    if resource is None and client is not None and isinstance(version, str):
        resource = served_kinds.by_kind(client, version, str(kind))
    if resource is not None:
        return resource
    from windlass.api.resources import ALL

    similar = {r.kind for r in ALL if r.api_version == version and r.kind.lower() == str(kind).lower()}
    if similar:
        raise WindlassError(
            "WL-KIND-404",
            f"{document.where}: kind {kind} of {version} is not served",
            evidence="kinds are case-sensitive",
            remedies=tuple(f"did you mean kind: {kind_name}?" for kind_name in similar),
        )
    raise _not_served(document, version, kind)


def _not_served(document: Document, version: str, kind: str) -> WindlassError:
    """Return the error for an unknown kind.

    Remedies stay in the API group that was written. A kind of the same name in another group has other
    fields: ``batch/v1`` Job is not ``batch.volcano.sh`` Job.
    """
    from difflib import get_close_matches

    from windlass.api.resources import ALL
    from windlass.cli.errors import nearest

    group, _, _ = version.rpartition("/")
    close_groups = get_close_matches(group, {r.group for r in ALL if r.group}, 1, _GROUP_TYPO)
    meant = close_groups[0] if group and close_groups else group
    kinds = {r.kind for r in ALL if r.group == meant}
    versions = sorted({r.api_version for r in ALL if r.group == meant and r.kind.lower() == kind.lower()})
    if versions:
        close = [f"did you mean apiVersion: {other}?" for other in versions]
    else:
        close = [f"did you mean kind: {match}?" for match in nearest(kind, kinds)]
    shown = f"group {group}" if group else "the core group"
    served = f"{shown} serves {', '.join(sorted(kinds))}"
    if meant != group:
        served = f"{shown} is not served, and {meant} is"
    if not kinds:
        served = f"{shown} is not served"
    others = sorted({r.group for r in ALL if r.kind == kind and r.group and r.group != meant})
    if others:
        served += f"; other groups have another kind {kind}: {', '.join(others)}"
    return WindlassError(
        "WL-KIND-404",
        f"{document.where}: kind {kind} of {version} is not served",
        evidence=served,
        remedies=(*close, "kubectl api-resources"),
    )


def _duplicates(document: Document) -> list[str]:
    return [f'duplicate field "{path}"' for path in document.duplicates]


def _plain_text(error: StatusError) -> str:
    causes = error.details.get("causes") or ()
    texts = [f"{c.get('field', '')}: {c.get('message', '')}".strip(": ") for c in causes]
    return "; ".join(texts) or error.message.rpartition("strict decoding error: ")[2]


def refusal(
    document: Document, resource: Resource, error: StatusError, client: BlockingClient | None
) -> WindlassError:
    """Return the server's refusal of a document, with file and line.

    ``client``: to look up what the error names; ``None`` if there is no server.
    """
    if error.code in (400, 422) and (wrong := wrong_types(resource, document.obj)):
        return _of_wrong_types(document, resource, wrong)
    return _located(document, translate(error, client), error)


def _of_wrong_types(document: Document, resource: Resource, wrong: list[WrongType]) -> WindlassError:
    explained = re.sub(r"\[\d+\]", "", wrong[0].field)
    version = f" --api-version={resource.api_version}" if resource.group else ""
    lines = [f"line {document.line_of(problem.field)}: {problem.text}" for problem in wrong[:_SHOWN_PROBLEMS]]
    if len(wrong) > _SHOWN_PROBLEMS:
        lines.append(f"and {len(wrong) - _SHOWN_PROBLEMS} more")
    corrections = dict.fromkeys(
        problem.correction for problem in wrong[:_SHOWN_PROBLEMS] if problem.correction
    )
    return WindlassError(
        "WL-MANIFEST-422",
        f"{document.source}:{document.line_of(wrong[0].field)}: {document.title} has a value of the wrong type",
        evidence="\n     ".join(lines),
        remedies=tuple(corrections) or (f"kubectl explain {resource.singular}.{explained}{version}",),
    )


def _located(document: Document, error: WindlassError, status: StatusError) -> WindlassError:
    """Return the error with its place in the manifest."""
    place = document.where
    for cause in status.details.get("causes") or ():
        if cause.get("field"):
            place = f"{document.source}:{document.line_of(str(cause['field']))}"
            break
    return WindlassError(
        error.code, f"{place}: {error.message}", evidence=error.evidence, remedies=error.remedies
    )
