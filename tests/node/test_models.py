"""Models of a node: fetched for ModelCaches, shared by nodes of one machine, removed with them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from node_agent_server import NODE, NodeBox, serving

from windlass.api.errors import StatusError
from windlass.api.fields.model_cache import model_cache
from windlass.api.nodes.simulated import node_object
from windlass.api.resources import MODEL_CACHES, NODES
from windlass.modelcache.folder import ModelReference
from windlass.node.options import AgentOptions


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[NodeBox]:
    async with serving(tmp_path, AgentOptions(node_name=NODE, gpus="none")) as found:
        await found.client.create(NODES, node_object("sim-0", cpu="8", memory="64Gi", gpus=4))
        yield found


async def ask(box: NodeBox, node: str, source: Path, **given: str) -> tuple[str, str]:
    """Create a ModelCache; return its name and the key of the model."""
    model = {"name": source.name, "source": source.as_uri(), **given}
    key = ModelReference(**model).key
    body = await box.client.create(MODEL_CACHES, model_cache(node, key, model))
    return body["metadata"]["name"], key


async def becomes(box: NodeBox, name: str, state: str) -> dict[str, Any]:
    async def there() -> bool:
        status = (await box.client.get(MODEL_CACHES, name)).get("status") or {}
        return status.get("state") == state

    await box.until(there)
    return (await box.client.get(MODEL_CACHES, name))["status"]


async def label(box: NodeBox, node: str, key: str) -> str | None:
    labels = (await box.client.get(NODES, node))["metadata"]["labels"]
    return labels.get(f"model.kurator.dev/{key}")


async def test_nodes_of_one_machine_share_a_model_until_the_last_lets_it_go(
    box: NodeBox, tmp_path: Path
) -> None:
    source = tmp_path / "tiny"
    source.mkdir()
    (source / "weights").write_bytes(b"x" * 5000)
    own, key = await ask(box, NODE, source)
    first = await becomes(box, own, "Ready")
    simulated, _ = await ask(box, "sim-0", source)
    second = await becomes(box, simulated, "Ready")
    assert (first["bytes"], second["fetchSeconds"]) == (5000, 0)
    files = Path(first["path"])
    assert first["path"] == second["path"]
    assert (files / "weights").read_bytes() == b"x" * 5000
    assert [await label(box, node, key) for node in (NODE, "sim-0")] == ["ready", "ready"]

    async def gone(name: str) -> bool:
        try:
            await box.client.get(MODEL_CACHES, name)
        except StatusError as error:
            return error.code == 404
        return False

    await box.client.delete(MODEL_CACHES, own)
    await box.until(lambda: gone(own))
    assert files.is_dir()
    assert [await label(box, node, key) for node in (NODE, "sim-0")] == [None, "ready"]
    await box.client.delete(MODEL_CACHES, simulated)
    await box.until(lambda: gone(simulated))
    assert not files.exists()


async def test_a_model_that_cannot_be_had_says_why(box: NodeBox, tmp_path: Path) -> None:
    absent, _ = await ask(box, NODE, tmp_path / "absent")
    status = await becomes(box, absent, "Absent")
    assert (status["reason"], status["message"]) == ("NotFound", f"{tmp_path / 'absent'} does not exist")
    (tmp_path / "odd").write_bytes(b"x")
    odd, _ = await ask(box, NODE, tmp_path / "odd", sha256="0" * 64)
    status = await becomes(box, odd, "Corrupt")
    assert status["reason"] == "Corrupt"


async def test_a_source_without_a_scheme_and_changes_are_refused(box: NodeBox, tmp_path: Path) -> None:
    with pytest.raises(StatusError, match=r"spec.model.source: .*must begin with one of file://"):
        await box.client.create(MODEL_CACHES, model_cache(NODE, "k", {"name": "x", "source": "s3://x/y"}))
    (tmp_path / "m").write_bytes(b"x")
    name, _ = await ask(box, NODE, tmp_path / "m")
    with pytest.raises(StatusError, match=r"spec.nodeName: .*cannot be changed"):
        await box.client.patch(MODEL_CACHES, name, {"spec": {"nodeName": "sim-0"}})
