"""Reconcilers of one control plane: each has a name of its own, or one would replace the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from fakeapi import FakeApi
from prometheus_client import CollectorRegistry

from windlass.controllers import manager
from windlass.controllers.job_kinds.families import FAMILIES, FamilyContext
from windlass.controllers.metrics import ControllerMetrics
from windlass.kits.rng import seeded


@pytest.mark.parametrize("embedded", [True, False])
def test_no_two_reconcilers_share_a_name(embedded: bool) -> None:
    api: Any = FakeApi()
    metrics = ControllerMetrics(CollectorRegistry())
    rng = seeded(1)
    found = manager._reconcilers(api, api, api.clock, rng, embedded, (), None, metrics)
    if not embedded:  # the families start as their kinds are served
        context = FamilyContext(api, api, api.clock, "windlass")
        found = [*found, *(one for family in FAMILIES for one in family.reconcilers(context))]
    names = Counter(reconciler.name for reconciler in found)
    assert [name for name, count in names.items() if count > 1] == []
    assert {"attempts-jobs.batch.volcano.sh", "attempts-pytorchjobs.kubeflow.org"} <= names.keys()
    assert ("attempts-jobs.batch" in names) == embedded
    assert ("rendezvous" in names) != embedded
