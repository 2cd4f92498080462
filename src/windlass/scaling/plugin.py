"""Recommender that a user writes in Python: a class derived from :class:`AutoScaler`.

The class is run where its job runs, never in the control plane.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from windlass.scaling.recommendation import Recommendation, Replicas

BOUND_NAMES = ("current_replicas", "min_replicas", "max_replicas")
"""Names that are set before each call: attributes of the object and globals of its module."""


class PluginError(ValueError):
    """A plug-in that cannot be loaded. The message says which and why."""


class AutoScaler:
    """Base class of recommenders. Override :meth:`calculate_desired_replicas`."""

    current_replicas: int = 0
    min_replicas: int = 0
    max_replicas: int = 0

    def calculate_desired_replicas(self, metrics: Mapping[str, float]) -> int:
        """Return the number of replicas that the metrics call for.

        ``metrics`` by name, among them ``nvidia_gpu_utilization`` (ratio from 0 to 1) and
        ``pending_aigc_jobs``. The attributes ``current_replicas``, ``min_replicas`` and
        ``max_replicas`` are set; the same names are globals of the module unless the
        module defines them itself. The result is cut to the bounds by the caller.
        """
        raise NotImplementedError


class Plugin:
    """A loaded class with the globals that it expects."""

    def __init__(self, scaler: AutoScaler) -> None:
        self.scaler = scaler
        self.name = type(scaler).__name__
        namespace = vars(sys.modules[type(scaler).__module__])
        self._globals = namespace
        self._free = [name for name in BOUND_NAMES if name not in namespace]

    def recommend(self, metrics: Mapping[str, float], replicas: Replicas) -> Recommendation:
        """Call the class once. Whatever it raises becomes the error of the recommendation."""
        values: dict[str, int] = dict(
            zip(BOUND_NAMES, (replicas.current, replicas.minimum, replicas.maximum), strict=True)
        )
        for name, value in values.items():
            setattr(self.scaler, name, value)
        self._globals.update({name: values[name] for name in self._free})
        seen = _ReadMetrics(metrics)
        try:
            wanted = _whole(self.scaler.calculate_desired_replicas(seen))
        except Exception as error:  # a user's code may raise anything
            return self._failed(replicas, _words(error, metrics))
        read = ", ".join(f"{name} {metrics[name]:g}" for name in seen.read)
        given = f"({read}) " if read else ""
        words = f"{self.name} {given}of {replicas.current} replicas = {wanted}"
        return Recommendation(self.name, wanted, words, reads=tuple(seen.read))

    def _failed(self, replicas: Replicas, error: str) -> Recommendation:
        return Recommendation(self.name, replicas.current, f"{self.name} failed, {error}", error)


def load_plugin(reference: str, folder: Path | None = None) -> Plugin:
    """Load ``file.py[:Class]`` or ``module[:Class]``. Raises :class:`PluginError`.

    A relative file is looked up in ``folder``, or else in the working directory. Without
    a class, the only one in the module that derives from :class:`AutoScaler` is meant.
    """
    where, _, wanted = reference.partition(":")
    try:
        module = _load_file(where, folder) if where.endswith(".py") else importlib.import_module(where)
    except PluginError:
        raise
    except Exception as error:  # the module's own code may raise anything
        raise PluginError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error
    return _created(_class_in(module, where, wanted), where)


def load_source(text: str, name: str, wanted: str = "") -> Plugin:
    """Load the text of a module. ``name``: where the text is, for messages. ``wanted``: the class."""
    module = ModuleType(f"windlass_plugin_{abs(hash(text))}")
    sys.modules[module.__name__] = module
    try:
        exec(compile(text, name, "exec"), vars(module))
    except Exception as error:  # the module's own code may raise anything
        raise PluginError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    return _created(_class_in(module, name, wanted), name)


def _created(found: type[AutoScaler], where: str) -> Plugin:
    try:
        return Plugin(found())
    except Exception as error:  # a user's code may raise anything
        words = f"{type(error).__name__}: {error}"
        raise PluginError(f"{where}: {found.__name__}() failed, {words}") from error


def _load_file(where: str, folder: Path | None) -> ModuleType:
    path = (folder or Path.cwd()) / where
    if not path.is_file():
        raise PluginError(f"{path} is not a file")
    name = f"windlass_plugin_{path.stem}_{abs(hash(str(path.resolve())))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _class_in(module: ModuleType, where: str, wanted: str) -> type[AutoScaler]:
    found = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, AutoScaler) and value.__module__ == module.__name__
    }
    if wanted:
        value = getattr(module, wanted, None)
        if not (isinstance(value, type) and issubclass(value, AutoScaler)):
            raise PluginError(f"{where} has no class {wanted} that derives from AutoScaler{_listed(found)}")
        return value
    if len(found) != 1:
        count = "no class" if not found else "several classes"
        raise PluginError(f"{where} has {count} deriving from AutoScaler{_listed(found)}")
    return next(iter(found.values()))


def _listed(found: Mapping[str, Any]) -> str:
    return f": {', '.join(sorted(found))}" if found else ""


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"the result {value!r} is no number")
    if not math.isfinite(value):
        raise ValueError(f"the result is {value}")
    return int(value)


def _words(error: Exception, metrics: Mapping[str, float]) -> str:
    if isinstance(error, KeyError) and error.args and error.args[0] not in metrics:
        return f"metric {error.args[0]!r} has no value; reported: {', '.join(sorted(metrics)) or 'none'}"
    return f"{type(error).__name__}: {error}"


class _ReadMetrics(dict[str, float]):
    """Metrics, with a record of the names that were read, in the order of reading."""

    def __init__(self, metrics: Mapping[str, float]) -> None:
        super().__init__(metrics)
        self.read: list[str] = []

    def __getitem__(self, name: str) -> float:
        value = super().__getitem__(name)
        self._note(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        if name in self:
            self._note(name)
        return super().get(name, default)

    def items(self) -> Any:
        for name in self:
            self._note(name)
        return super().items()

    def _note(self, name: str) -> None:
        if name not in self.read:
            self.read.append(name)
