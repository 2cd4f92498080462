"""Nodes with GPUs of the model that a job requests, before it is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api import views
from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.cli.jobs.requests.job_builder import GPU, JobRequest
from windlass.cli.text import plural
from windlass.model.devices.node_devices import devices_of
from windlass.spi.model_names import names_any

Object = Mapping[str, Any]
_MAX_MODELS = 6


def counts(request: JobRequest, nodes: Sequence[Object]) -> dict[str, int]:
    """Return the number of GPUs of a matching model on each node, by its name.

    GPUs of an unknown model may match. Raises :class:`WindlassError` if none matches.
    """
    wanted_models = [wanted.strip().casefold() for wanted in request.gpu_model.split(",") if wanted.strip()]
    matching: dict[str, int] = {}
    existing: dict[str, int] = {}
    for node in nodes:
        devices = devices_of(views.decode_node(views.encode(node)))
        models = [device.model for device in devices if device.resource == GPU or request.gpu_memory]
        matches = [model for model in models if not model or names_any(wanted_models, model)]
        matching[node["metadata"]["name"]] = len(matches)
        for model in models:
            existing[model] = existing.get(model, 0) + 1
    if any(matching.values()):
        return matching
    raise WindlassError(
        "WL-GPU-413",
        f"no node has a GPU of model {request.gpu_model}",
        evidence=f"existing GPUs: {_models_text(existing)}; part of a name is sufficient; the job was not submitted",
        remedies=(
            *(f"--gpu-model {model}" for model in _nearest_models(wanted_models, existing)),
            "windlass gpu",
        ),
    )


def _models_text(models: Mapping[str, int]) -> str:
    """Return models with counts, the most frequent first: ``H100-80GB (16), T4 (2)``."""
    names = sorted(models, key=lambda name: (-models[name], name))
    more = f" and {plural(len(names) - _MAX_MODELS, 'more model')}" if len(names) > _MAX_MODELS else ""
    return ", ".join(f"{name} ({models[name]})" for name in names[:_MAX_MODELS]) + more


def _nearest_models(wanted_models: Sequence[str], models: Mapping[str, int]) -> list[str]:
    """Return models with a name, or a part of it, close to a mistyped one."""
    parts: dict[str, str] = {}
    for model in models:
        for part in (model, *model.split("-")):
            parts.setdefault(part.casefold(), model)
    return list(dict.fromkeys(parts[match] for wanted in wanted_models for match in nearest(wanted, parts)))
