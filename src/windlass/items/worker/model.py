"""Files of the job's model in a worker: fetched if they are missing, kept while they are used.

The runtime finds their folder in the environment variable ``WINDLASS_MODEL_PATH``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from windlass.items.runtimes.base import MODEL_PATH, SetupError

MODEL = "WINDLASS_MODEL"
"""Environment variable: JSON with ``name``, ``source``, ``revision``, ``sha256``, ``pin``, and
with ``memory``, the limit in bytes of a model in shared memory (0: none), if it is shared."""
MODELS = "WINDLASS_MODELS"
"""Environment variable: folder of the node's models."""
MODEL_MEMORY = "WINDLASS_MODEL_MEMORY"
"""Environment variable: folder of shared models in the memory of the node."""
FETCHED, FOUND, LOADED, ATTACHED = "fetched", "found", "loaded", "attached"


@dataclass(frozen=True)
class ModelFiles:
    """Model of a worker. ``how``: where its files came from; empty without a model."""

    how: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def model_files(environment: Mapping[str, str]) -> Iterator[ModelFiles]:
    """Give the environment of the runtime. Raises :class:`SetupError` for a model that cannot be had."""
    if MODEL not in environment:
        yield ModelFiles("", environment)
        return
    # Imported on use: HTTP and TLS would take half of the start of a worker without a model.
    from pathlib import Path

    from windlass.modelcache.fetch import fetch
    from windlass.modelcache.folder import CacheFolder, ModelCacheError, ModelReference
    from windlass.modelcache.shared import MEMORY, attach

    asked = json.loads(environment[MODEL])
    limit = asked.pop("memory", None)
    pin = bool(asked.pop("pin", False))
    model = ModelReference(**asked)
    folder = CacheFolder(Path(environment[MODELS]))
    try:
        found = fetch(folder, model, pin=pin)
        with folder.use(model.key) as files:
            if limit is None:
                how = FOUND if found.reused else FETCHED
                yield ModelFiles(how, {**environment, MODEL_PATH: str(files)})
                return
            memory = Path(environment.get(MODEL_MEMORY) or MEMORY)
            # By checksum: a branch of the source may have moved since an earlier copy was loaded.
            shared = attach(files, f"{model.key}-{found.model.sha256[:12]}", memory, limit or None)
            try:
                how = LOADED if shared.loaded else ATTACHED
                yield ModelFiles(how, {**environment, MODEL_PATH: str(shared.files)})
            finally:
                shared.close()
    except ModelCacheError as error:
        raise SetupError(f"model {model.name}: {error}") from error
