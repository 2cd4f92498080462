"""A dump becomes the same deltas as live objects."""

from __future__ import annotations

import pytest
from kubeobjects import group, node, pod

from windlass.engine import deltas
from windlass.model.cluster.snapshot import SnapshotError, from_objects


def test_lists_are_expanded_and_unknown_kinds_counted() -> None:
    typed = {
        "apiVersion": "v1",
        "kind": "NodeList",
        "items": [{k: v for k, v in node("n").items() if k != "kind"}],
    }
    mixed = {"apiVersion": "v1", "kind": "List", "items": [pod("a", scheduler="volcano"), group("g", 1)]}
    found = from_objects([typed, mixed, {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}])
    assert [type(d) for d in found.deltas] == [
        deltas.NodeUpserted,
        deltas.QueueUpserted,
        deltas.QueueUpserted,
        deltas.GroupUpserted,
        deltas.GroupUpserted,
        deltas.TaskUpserted,
    ]
    assert found.ignored == {"v1/Secret": 1}


def test_object_without_a_name_is_rejected_with_its_position() -> None:
    with pytest.raises(SnapshotError, match=r"object 1: items\[0\] \(v1/Pod\): metadata"):
        from_objects(
            [node("n"), {"kind": "List", "items": [{"apiVersion": "v1", "kind": "Pod", "metadata": {}}]}]
        )
    with pytest.raises(SnapshotError, match="object 0: is not an object"):
        from_objects(["x"])  # type: ignore[list-item]
