"""Admission chain: the order of the plugins, and the call that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.api import defaults, errors, validation
from windlass.api.resources import Resource
from windlass.kits.clock import Clock
from windlass.kits.rng import Random
from windlass.server.admission import (
    addresses,
    aigc,
    aliases,
    batch,
    definitions,
    deletion,
    drivers,
    leaderworkersets,
    limits,
    namespaces,
    network,
    pods,
    policy,
    priority,
    queues,
    quota,
    ray,
    storage,
    trainer,
    volcano,
    workflows,
)
from windlass.server.admission.objects import Objects
from windlass.server.admission.plugin import DELETE, AdmissionOptions, AdmissionPlugin, Caller, Review


class Reviewed(msgspec.Struct, frozen=True):
    """Object to be stored, and warnings for the client (``Warning`` headers)."""

    object: dict[str, Any]
    warnings: list[str] = msgspec.field(default_factory=list)


def _apply_defaults(review: Review) -> None:
    if review.main or review.resource.custom:
        defaults.apply(review.resource, review.object)
    elif review.caller.subresource == "ephemeralcontainers":
        defaults.pod.ephemeral_containers(review.object)


def _validate(review: Review) -> None:
    problems = validation.validate(review.resource, review.object, review.old, review.caller.subresource)
    if problems:
        raise errors.invalid(review.resource, review.name, problems)


class Admission:
    """Reviews every write.

    One event loop calls it, and stores each result before the next call.
    """

    def __init__(
        self, objects: Objects, *, clock: Clock, rng: Random, options: AdmissionOptions | None = None
    ) -> None:
        self._objects = objects
        self._clock = clock
        self._rng = rng
        self._options = options or AdmissionOptions()
        self._ledger = quota.QuotaUsage(objects)
        self._writes: Sequence[AdmissionPlugin] = (
            namespaces.lifecycle,
            aliases.normalise,
            aigc.normalise,
            network.apply_preset,
            leaderworkersets.finish,
            _apply_defaults,
            batch.select_pods,
            priority.resolve,
            limits.apply,
            pods.finish,
            addresses.assign,
            storage.finish,
            volcano.fill,
            definitions.prepare,
            _validate,
            definitions.settle,
            namespaces.administration,
            priority.check_classes,
            queues.check,
            volcano.check,
            trainer.check,
            aigc.check,
            workflows.check,
            ray.advise,
            self._ledger.check,
            volcano.advise,
            policy.advise,
            pods.advise_template,
            drivers.advise,
        )
        self._deletes: Sequence[AdmissionPlugin] = (namespaces.undeletable, deletion.check)

    def review(
        self,
        operation: str,
        resource: Resource,
        new: dict[str, Any] | None,
        old: dict[str, Any] | None,
        context: Caller,
    ) -> Reviewed:
        """Change ``new`` in place and check it.

        ``operation``: CREATE, UPDATE or DELETE.

        Raises :class:`windlass.api.errors.StatusError` if the object must not be stored
        or deleted.
        """
        deleting = operation == DELETE
        subject = (old if deleting else new) or {}
        review = Review(
            operation,
            resource,
            subject,
            old,
            context,
            self._objects,
            self._clock,
            self._rng,
            self._options,
        )
        for plugin in self._deletes if deleting else self._writes:
            plugin(review)
        return Reviewed(review.object, review.warnings)
