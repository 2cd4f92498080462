"""Which nodes have GPUs of the model that a job asks for, before it is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import views
from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.cli.jobs.job_builder import GPU, JobRequest
from windlass.cli.text import plural
from windlass.model.devices.node_devices import devices_of

Object = Mapping[str, Any]
_MOST_TOLD = 6


def counts(request: JobRequest, nodes: Sequence[Object]) -> dict[str, int]:
    """How many GPUs of a model that suits each node has, by its name; those whose model nobody tells may suit. Raises
    :class:`WindlassError` where there is none at all."""
    words = [word.strip().casefold() for word in request.gpu_model.split(",") if word.strip()]
    found: dict[str, int] = {}
    others: dict[str, int] = {}
    for node in nodes:
        cards = devices_of(views.decode_node(views.encode(node)))
        models = [card.model for card in cards if card.resource == GPU or request.gpu_memory]
        suiting = [model for model in models if not model or any(word in model.casefold() for word in words)]
        found[node["metadata"]["name"]] = len(suiting)
        for model in models:
            others[model] = others.get(model, 0) + 1
    if any(found.values()):
        return found
    raise WindlassError(
        "WL-GPU-413",
        f"no node has a GPU of model {request.gpu_model}",
        evidence=f"GPUs there are: {_told(others)}; a part of a model's name will do; the job was not submitted",
        remedies=(*(f"--gpu-model {model}" for model in _close(words, others)), "windlass gpu"),
    )


def _told(models: Mapping[str, int]) -> str:
    """``H100-80GB (16), T4 (2)``: the most first."""
    names = sorted(models, key=lambda name: (-models[name], name))
    more = f" and {plural(len(names) - _MOST_TOLD, 'more model')}" if len(names) > _MOST_TOLD else ""
    return ", ".join(f"{name} ({models[name]})" for name in names[:_MOST_TOLD]) + more


def _close(words: Sequence[str], models: Mapping[str, int]) -> list[str]:
    """Models whose name, or a part of it, was mistyped."""
    parts: dict[str, str] = {}
    for model in models:
        for part in (model, *model.split("-")):
            parts.setdefault(part.casefold(), model)
    return list(dict.fromkeys(parts[match] for word in words for match in nearest(word, parts)))
