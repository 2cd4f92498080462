"""Removal of a CustomResourceDefinition, and names that become free."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from definitions import definition, thing
from fakeapi import Crash, FakeApi

from windlass.api.resources import CUSTOM_RESOURCE_DEFINITIONS, Resource
from windlass.api.structural import names
from windlass.controllers.apply_effects import EffectExecutor
from windlass.controllers.custom_kinds import kinds_of
from windlass.controllers.definitions.controller import DefinitionController
from windlass.controllers.definitions.reconcile import DefinitionSnapshot, reconcile

Json = dict[str, Any]
NAME = "things.conformance.example.com"


def established(**changes: Any) -> Json:
    crd = definition("things", "Thing", schema={"type": "object"})
    crd["spec"]["names"] |= {"singular": "thing", "listKind": "ThingList"}
    crd["metadata"] |= {"uid": "u", **changes}
    crd["status"] = names.settle(crd, [], 0.0)
    return crd


def removed() -> Json:
    crd = established(deletionTimestamp="2026-01-01T12:00:00Z", finalizers=[names.CLEANUP, "a.io/x"])
    return crd


def test_name_that_becomes_free_is_accepted() -> None:
    first = established()
    second = definition("others", "Other", schema={"type": "object"}, shortNames=["thing"])
    second["spec"]["names"] |= {"singular": "other", "listKind": "OtherList"}
    second["status"] = names.settle(second, [first], 0.0)
    conditions = {c["type"]: (c["status"], c["reason"], c["message"]) for c in second["status"]["conditions"]}
    assert conditions["NamesAccepted"] == ("False", "ShortNamesConflict", '"thing" is already in use')
    assert conditions["Established"][0] == "False"
    second["metadata"]["uid"] = "v"
    blocked = DefinitionSnapshot(None, (), [first], 1.0)
    assert reconcile(second, blocked).stages == ()
    (patch,) = reconcile(second, DefinitionSnapshot(None, (), [], 1.0)).patches
    assert (patch.subresource, patch.patch["status"]["acceptedNames"]["shortNames"]) == ("status", ["thing"])
    assert names.is_true(patch.patch["status"]["conditions"], "Established")


class World:
    """One definition with three objects, and its controller."""

    def __init__(self) -> None:
        self.api = FakeApi()
        self.kind: Resource = kinds_of(established())[0]
        for name in ("a", "b", "c"):
            self.api.put(self.kind, {**thing(name, {}), "metadata": {"name": name, "namespace": "default"}})
        self.api.put(CUSTOM_RESOURCE_DEFINITIONS, removed())
        self.restart()

    def restart(self) -> None:
        self.api.crash_after = None
        self.controller = DefinitionController(self.api, self.api, self.api.clock)  # type: ignore[arg-type]
        self.executor = EffectExecutor(self.api)  # type: ignore[arg-type]

    def step(self) -> None:
        effects = asyncio.run(self.controller.reconcile(NAME))
        asyncio.run(self.executor.perform(effects))

    def settle(self) -> None:
        for _ in range(5):
            self.step()

    @property
    def picture(self) -> tuple[int, list[str], list[tuple[str, str]]]:
        crd = self.api.object(CUSTOM_RESOURCE_DEFINITIONS, NAME)
        assert crd is not None
        conditions = [(c["type"], c["reason"]) for c in crd["status"]["conditions"]]
        return len(self.api.objects(self.kind)), crd["metadata"]["finalizers"], conditions


def test_removal_deletes_the_objects_first() -> None:
    world = World()
    world.step()
    assert world.picture[1] == [names.CLEANUP, "a.io/x"]
    world.settle()
    assert world.picture == (
        0,
        ["a.io/x"],
        [
            ("NamesAccepted", "NoConflicts"),
            ("Established", "InitialNamesAccepted"),
            ("Terminating", "InstanceDeletionCompleted"),
        ],
    )


def test_controller_that_is_killed_between_any_two_writes_ends_in_the_same_state() -> None:
    whole = World()
    whole.settle()
    for writes in range(8):
        world = World()
        world.api.crash_after = writes
        with contextlib.suppress(Crash, BaseExceptionGroup):
            world.settle()
        world.restart()
        world.settle()
        assert world.picture == whole.picture, writes


def test_definition_of_a_built_in_kind_removes_nothing() -> None:
    crd = removed()
    crd["spec"]["group"], crd["spec"]["names"]["plural"] = "kubeflow.org", "pytorchjobs"
    crd["metadata"]["name"] = "pytorchjobs.kubeflow.org"
    assert kinds_of(crd) == []
    effects = reconcile(crd, DefinitionSnapshot(None, (), (), 1.0, built_in=True))
    assert effects.deletes == []
    reasons = [c["reason"] for c in effects.patches[0].patch["status"]["conditions"]]
    assert reasons[-1] == "OverlappingBuiltInResource"
