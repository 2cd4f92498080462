"""Applying documents: create, or change by a three-way merge; and the strict rehearsal before any write."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.api.errors import StatusError, WindlassError
from windlass.api.resources import NAMESPACES, QUEUES, Resource, by_kind
from windlass.cli.errors import translate
from windlass.cli.invocation import Invocation
from windlass.cli.manifests.read import Document
from windlass.cli.manifests.three_way import LAST_APPLIED, merge_patch, strategic_patch

REFUSED_WHEN_STRICT = ("alias:", "default:", "unknown field", "duplicate field")
_MANAGER = "windlass-apply"
NONE, SERVER, CLIENT = "none", "server", "client"
"""Who checks a dry run, in kubectl's words."""


@dataclass(slots=True)
class ApplyResult:
    """What became of one document. ``action``: created, configured, unchanged; valid, where no server was asked."""

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
    """Why a document is refused: what was found, at which line."""

    document: Document
    text: str

    def __str__(self) -> str:
        return f"{self.document.where} {self.document.title}: {self.text}"


class Applier:
    """Applies documents one by one; gathers the server's warnings per document."""

    def __init__(self, invocation: Invocation, *, strict: bool, dry_run: str) -> None:
        self._invocation = invocation
        self._validation = "Strict" if strict else "Warn"
        self._dry_run = dry_run

    def apply(self, document: Document) -> ApplyResult:
        """Raises :class:`WindlassError` naming the document, and ``Unreachable``."""
        resource = resource_of(document)
        sent, heard = self._prepared(document, resource), list[str]()
        try:
            if self._dry_run == CLIENT:
                heard += _check(resource, sent, self._validation)
                result = ApplyResult(document, resource, "valid", sent)
            else:
                result = self._ask(document, resource, sent, self._dry_run == SERVER, heard)
        except StatusError as error:
            client = None if self._dry_run == CLIENT else self._invocation.client
            raise _located(document, translate(error, client), error) from error
        result.warnings = [*heard, *_twice(document)]
        return result

    def _ask(
        self, document: Document, resource: Resource, obj: dict[str, Any], dry_run: bool, heard: list[str]
    ) -> ApplyResult:
        """:meth:`_write`, with what the server warns of in ``heard``. Raises ``StatusError``, ``Unreachable``."""
        client = self._invocation.client
        client.on_warning = heard.append
        try:
            return self._write(document, resource, obj, dry_run)
        finally:
            client.on_warning = self._invocation.warn

    def rehearse(self, documents: Sequence[Document]) -> list[ManifestProblem]:
        """Every document as a dry run; what ``--strict`` refuses. Nothing is written.

        What earlier documents would create (namespaces, queues) is not there yet; a document that needs
        it is rehearsed with what always exists in its place.
        """
        problems: list[ManifestProblem] = []
        coming = {(d.obj.get("kind"), (d.obj.get("metadata") or {}).get("name")) for d in documents}
        for document in documents:
            resource = resource_of(document)
            heard: list[str] = []
            sent = self._prepared(document, resource)
            try:
                if self._dry_run == CLIENT:
                    _check(resource, sent, self._validation)
                else:
                    self._ask(document, resource, self._standing_in(sent, resource, coming), True, heard)
            except StatusError as error:
                problems.append(ManifestProblem(document, _plain(error)))
            texts = [*heard, *_twice(document)]
            problems += [
                ManifestProblem(document, text) for text in texts if text.startswith(REFUSED_WHEN_STRICT)
            ]
        return problems

    def _prepared(self, document: Document, resource: Resource) -> dict[str, Any]:
        """The object as it is sent: with its namespace, and the manifest in an annotation."""
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
        asked, own = self._invocation.namespace, metadata.get("namespace")
        if asked and own and asked != own:
            raise WindlassError(
                "WL-MANIFEST-422",
                f"{document.where}: {document.title} belongs to namespace {own}, not {asked}",
                evidence="the manifest and -n disagree",
                remedies=(f"windlass apply -n {own} …", "remove metadata.namespace from the manifest"),
            )

    @staticmethod
    def _standing_in(obj: dict[str, Any], resource: Resource, coming: set[tuple[Any, Any]]) -> dict[str, Any]:
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
        name, space = metadata.get("name"), metadata.get("namespace")
        live = client.find(resource, name, space) if name else None
        if live is None:
            made = client.create(
                resource,
                obj,
                space,
                dry_run=dry_run,
                field_validation=self._validation,
                field_manager=_MANAGER,
            )
            return ApplyResult(document, resource, "created", made)
        patch = _patch(resource, live, obj)
        if not patch:
            return ApplyResult(document, resource, "unchanged", live)
        changed = client.patch(
            resource,
            str(name),
            patch,
            space,
            kind="merge" if resource.custom else "strategic",
            field_validation=self._validation,
            field_manager=_MANAGER,
            dry_run=dry_run,
        )
        same = changed["metadata"].get("resourceVersion") == live["metadata"].get("resourceVersion")
        return ApplyResult(document, resource, "unchanged" if same and not dry_run else "configured", changed)


def _check(resource: Resource, obj: dict[str, Any], validation: str) -> list[str]:
    """What can be told of an object without a server: of its names, and of its fields and their types. What is to be
    warned of; raises ``StatusError``, as a server would."""
    from windlass.api import errors
    from windlass.api.validation import metadata
    from windlass.api.validation.collector import Collector
    from windlass.api.wire import field_review

    report = field_review.review(resource, copy.deepcopy(obj))
    warned = field_review.enforce(resource, report, validation)
    found = Collector()
    metadata.validate(resource, report.object, None, found)
    if found.errors:
        raise errors.invalid(resource, str(obj["metadata"].get("name") or ""), found.errors)
    return warned


def _patch(resource: Resource, live: dict[str, Any], modified: dict[str, Any]) -> dict[str, Any]:
    original: dict[str, Any] = {}
    text = (live["metadata"].get("annotations") or {}).get(LAST_APPLIED)
    if text:
        try:
            original = msgspec.json.decode(text)
        except msgspec.DecodeError:
            original = {}  # somebody wrote something else there: nothing can be told to have been removed
    modified = {key: value for key, value in modified.items() if key not in ("apiVersion", "kind", "status")}
    original = {key: value for key, value in original.items() if key not in ("apiVersion", "kind", "status")}
    if not resource.custom:
        from windlass.api.wire import schema

        struct = schema.for_kind(resource.group, resource.version, resource.kind)
        if struct is not None:
            return strategic_patch(struct, original, modified, live)
    return merge_patch(original, modified, live)


def resource_of(document: Document) -> Resource:
    """Raises :class:`WindlassError` when the kind is not known."""
    version, kind = document.obj["apiVersion"], document.obj["kind"]
    found = by_kind(version, kind)
    if found is not None:
        return found
    from windlass.api.resources import ALL

    meant = {r.kind for r in ALL if r.api_version == version and r.kind.lower() == str(kind).lower()}
    if meant:
        raise WindlassError(
            "WL-KIND-404",
            f"{document.where}: kind {kind} of {version} is not served",
            evidence="kinds are written with capital letters",
            remedies=tuple(f"did you mean kind: {one}?" for one in meant),
        )
    elsewhere = sorted({r.api_version for r in ALL if r.kind.lower() == str(kind).lower()})
    return _not_served(document, version, kind, elsewhere)


def _not_served(document: Document, version: str, kind: str, elsewhere: list[str]) -> Resource:
    from windlass.api.resources import ALL
    from windlass.cli.errors import nearest

    close = [f"did you mean kind: {match}?" for match in nearest(kind, {r.kind for r in ALL})]
    close = [f"did you mean apiVersion: {other}?" for other in elsewhere] or close
    raise WindlassError(
        "WL-KIND-404",
        f"{document.where}: kind {kind} of {version} is not served",
        evidence=f"{kind} is served as {', '.join(elsewhere)}" if elsewhere else "no such kind is known here",
        remedies=tuple(close),
    )


def _twice(document: Document) -> list[str]:
    return [f'duplicate field "{path}"' for path in document.duplicates]


def _plain(error: StatusError) -> str:
    causes = error.details.get("causes") or ()
    texts = [f"{c.get('field', '')}: {c.get('message', '')}".strip(": ") for c in causes]
    return "; ".join(texts) or error.message.rpartition("strict decoding error: ")[2]


def _located(document: Document, error: WindlassError, status: StatusError) -> WindlassError:
    """The error with the place in the manifest that it is about."""
    place = document.where
    for cause in status.details.get("causes") or ():
        if cause.get("field"):
            place = f"{document.source}:{document.line_of(str(cause['field']))}"
            break
    return WindlassError(
        error.code, f"{place}: {error.message}", evidence=error.evidence, remedies=error.remedies
    )
