"""Spec of a ``batch/v1`` Job, with the defaults of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from windlass.api.fields.batch import CONTROLLER_NAME, queue_of_job

Json = Mapping[str, Any]

DEFAULT_BACKOFF_LIMIT = 6
UNLIMITED = 2**31 - 1


class BatchFailureAction(StrEnum):
    """Action of a rule of ``podFailurePolicy``."""

    FAIL_JOB = "FailJob"
    FAIL_INDEX = "FailIndex"
    IGNORE = "Ignore"
    COUNT = "Count"


@dataclass(frozen=True, slots=True)
class BatchFailureRule:
    """Rule of ``podFailurePolicy``: on exit codes or on conditions of the pod.

    ``codes``: ``None`` if the rule is about conditions. ``container``: empty for any.
    ``conditions``: type and status.
    """

    action: BatchFailureAction
    codes: frozenset[int] | None = None
    inverted: bool = False
    container: str = ""
    conditions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class SuccessCriterion:
    """Rule of ``successPolicy``. ``indexes``: ``None`` for any. ``count``: ``None`` for all of them."""

    indexes: frozenset[int] | None
    count: int | None


@dataclass(frozen=True, slots=True)
class BatchJobSpec:
    """Spec of one Job.

    ``completions``: ``None`` for a work queue, where one success ends the creation of
        pods.
    ``per_index``: ``backoffLimitPerIndex``; ``None`` if failures are counted for the
        whole job.
    ``queue``: queue of its pods; empty for the default one.
    ``only_failed``: a pod is replaced when it has finished, not already when it is
        terminating (``podReplacementPolicy: Failed``).
    """

    namespace: str
    name: str
    uid: str
    parallelism: int
    completions: int | None
    indexed: bool
    backoff_limit: int
    per_index: int | None
    max_failed_indexes: int | None
    deadline_seconds: int | None
    ttl_seconds: int | None
    suspend: bool
    managed_by: str
    queue: str
    only_failed: bool
    failure_rules: tuple[BatchFailureRule, ...]
    success: tuple[SuccessCriterion, ...]
    template: Json

    @property
    def restarts_in_place(self) -> bool:
        """Return whether the node restarts failed containers (``restartPolicy: OnFailure``)."""
        return (self.template.get("spec") or {}).get("restartPolicy") == "OnFailure"


def read_batch_job(obj: Json) -> BatchJobSpec:
    """Read an object that passed the validation of its kind."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    parallelism, completions = spec.get("parallelism"), spec.get("completions")
    if completions is None and parallelism is None:
        completions = 1
    per_index = spec.get("backoffLimitPerIndex")
    limit = spec.get("backoffLimit")
    rules = tuple(_failure_rule(rule) for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ())
    replacement = spec.get("podReplacementPolicy")
    if limit is None:
        limit = DEFAULT_BACKOFF_LIMIT if per_index is None else UNLIMITED
    return BatchJobSpec(
        namespace=metadata.get("namespace") or "default",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        parallelism=1 if parallelism is None else int(parallelism),
        completions=None if completions is None else int(completions),
        indexed=spec.get("completionMode") == "Indexed",
        backoff_limit=int(limit),
        per_index=None if per_index is None else int(per_index),
        max_failed_indexes=spec.get("maxFailedIndexes"),
        deadline_seconds=spec.get("activeDeadlineSeconds"),
        ttl_seconds=spec.get("ttlSecondsAfterFinished"),
        suspend=bool(spec.get("suspend")),
        queue=queue_of_job(obj),
        managed_by=str(spec.get("managedBy") or CONTROLLER_NAME),
        only_failed=replacement == "Failed" or (replacement is None and bool(rules)),
        failure_rules=rules,
        success=tuple(
            _success_criterion(rule) for rule in (spec.get("successPolicy") or {}).get("rules") or ()
        ),
        template=spec.get("template") or {},
    )


def _failure_rule(rule: Json) -> BatchFailureRule:
    action = BatchFailureAction(rule["action"])
    codes = rule.get("onExitCodes")
    if codes is not None:
        return BatchFailureRule(
            action,
            frozenset(int(value) for value in codes.get("values") or ()),
            codes.get("operator") == "NotIn",
            codes.get("containerName") or "",
        )
    conditions = tuple(
        (str(pattern.get("type")), str(pattern.get("status") or "True"))
        for pattern in rule.get("onPodConditions") or ()
    )
    return BatchFailureRule(action, conditions=conditions)


def _success_criterion(rule: Json) -> SuccessCriterion:
    indexes = rule.get("succeededIndexes")
    return SuccessCriterion(
        None if indexes is None else frozenset(parse_indexes(indexes)), rule.get("succeededCount")
    )


def parse_indexes(text: str) -> list[int]:
    """Return the indexes of a text such as ``0,2-4``. Raises ``ValueError`` for another form."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return found


def indexes_text(indexes: set[int] | frozenset[int]) -> str:
    """Return indexes in the form of the status: ``0,2-4``."""
    parts: list[str] = []
    ordered = sorted(indexes)
    position = 0
    while position < len(ordered):
        end = position
        while end + 1 < len(ordered) and ordered[end + 1] == ordered[end] + 1:
            end += 1
        first, last = ordered[position], ordered[end]
        parts.append(
            str(first) if first == last else f"{first}-{last}" if last > first + 1 else f"{first},{last}"
        )
        position = end + 1
    return ",".join(parts)
