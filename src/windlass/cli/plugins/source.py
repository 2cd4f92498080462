"""Plugin under trial: a class of a Python file, or a plugin that a configuration may name."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from windlass.api.errors import WindlassError
from windlass.cli.errors import nearest
from windlass.plugins import registry
from windlass.spi import (
    consent,
    devices,
    plugins,
    scoring,
    shares,
    timeshare,
    victims,
)
from windlass.spi.configuration import PluginOption

INPUT_ERROR = "WL-INPUT-465"
_EXAMPLE = 'a Score has name = "mine", footprint = Footprint.ROW and weight = 1.0'
_MODULES = (plugins, consent, devices, scoring, shares, timeshare, victims)


@dataclass(frozen=True, slots=True)
class TriedPlugin:
    """Plugin under trial. ``make`` returns new instances, one set for each engine.

    ``file``: path of its source; empty for a plugin that a configuration may name.
    """

    name: str
    make: Callable[[], list[object]]
    file: str = ""


def load(text: str, arguments: Mapping[str, Any]) -> TriedPlugin:
    """Return the plugin that ``FILE.py``, ``FILE.py:CLASS`` or a name stands for.

    Raises :class:`WindlassError`. The code of a file runs in this process.
    """
    path, _, attribute = text.partition(":")
    if path.endswith(".py") or "/" in path:
        return _of_file(path, attribute, arguments)
    return _of_name(text, arguments)


def hooks(kind: type) -> list[str]:
    """Return the names of the extension points that a class implements."""
    return [protocol.__name__ for protocol in _PROTOCOLS if _has_methods(kind, protocol)]


def _protocols() -> list[type]:
    return [
        value
        for module in _MODULES
        for _, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__ and getattr(value, "_is_runtime_protocol", False)
    ]


def _methods(protocol: type) -> list[str]:
    return [name for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"]


def _has_methods(kind: type, protocol: type) -> bool:
    names = _methods(protocol)
    return bool(names) and all(callable(getattr(kind, name, None)) for name in names)


_PROTOCOLS = _protocols()


def _check_attributes(plugin: object, path: str) -> None:
    """Raise :class:`WindlassError` if the engine would ignore a plugin for lack of an attribute."""
    for protocol in _PROTOCOLS:
        if not _has_methods(type(plugin), protocol):
            continue
        missing = [name for name in inspect.get_annotations(protocol) if not hasattr(plugin, name)]
        if missing:
            kind = type(plugin).__name__
            raise WindlassError(
                INPUT_ERROR,
                f"{path}: {kind} has the methods of a {protocol.__name__}, but not its attributes: "
                + ", ".join(missing),
                evidence=f"without them the engine ignores it; {_EXAMPLE}",
                remedies=(f"edit {path}", "windlass docs write-a-policy"),
            )


# -- names ----------------------------------------------------------------------------------------


def _of_name(name: str, arguments: Mapping[str, Any]) -> TriedPlugin:
    option = PluginOption(name, arguments=arguments)
    known = registry.known_plugins()
    if name not in known:
        raise WindlassError(
            "WL-USE-404",
            f'there is no plugin "{name}"',
            evidence="known: " + ", ".join(known),
            remedies=(*(f"windlass plugin try {one}" for one in nearest(name, known)), "windlass plugin ls"),
        )
    warnings: list[str] = []
    try:
        made = registry.added(option, warnings.append)
    except ValueError as error:
        raise WindlassError("WL-USE-400", str(error), remedies=(f"windlass plugin try {name}",)) from error
    if not made:
        raise WindlassError(
            "WL-USE-400",
            f"plugin {name} cannot be tried on top of a policy",
            evidence="; ".join(warnings) or "it changes how the default policy places pods",
            remedies=("windlass plan --config FILE   (with the plugin in FILE)", "windlass plugin ls"),
        )
    return TriedPlugin(name, lambda: registry.added(option, lambda _: None))


# -- files ----------------------------------------------------------------------------------------


def _of_file(path: str, attribute: str, arguments: Mapping[str, Any]) -> TriedPlugin:
    module = _module(path)
    kind = _chosen(module, path, attribute)
    option = PluginOption(getattr(kind, "name", kind.__name__), arguments=arguments)

    def make() -> list[object]:
        with errors_of(path):
            takes_option = bool(inspect.signature(kind).parameters)
            return [kind(option) if takes_option else kind()]

    if arguments and not inspect.signature(kind).parameters:
        raise WindlassError(
            "WL-USE-400",
            f"{kind.__name__} takes no arguments, but --arg was given",
            evidence="a plugin with arguments takes a PluginOption: def __init__(self, option=None)",
            remedies=(f"windlass plugin try {path}",),
        )
    for plugin in make():
        _check_attributes(plugin, path)
    return TriedPlugin(option.name, make, path)


def _module(path: str) -> ModuleType:
    if not Path(path).is_file():
        raise WindlassError(
            "WL-USE-400",
            f"there is no file {path}",
            remedies=("windlass plugin try FILE.py", "windlass plugin ls"),
        )
    name = f"windlass_tried_{Path(path).stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses of the file look themselves up there
    with errors_of(path):
        spec.loader.exec_module(module)
    return module


def _chosen(module: ModuleType, path: str, attribute: str) -> type:
    classes = {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and value.__module__ == module.__name__ and hooks(value)
    }
    if attribute:
        if attribute in classes:
            return classes[attribute]
        raise WindlassError(
            INPUT_ERROR,
            f"{path} has no plugin class {attribute}",
            evidence="its plugin classes: " + (", ".join(classes) or "none"),
            remedies=tuple(f"windlass plugin try {path}:{name}" for name in classes)
            or ("windlass docs write-a-policy",),
        )
    if len(classes) == 1:
        return next(iter(classes.values()))
    if classes:
        raise WindlassError(
            "WL-USE-400",
            f"{path} has several plugin classes: {', '.join(classes)}",
            remedies=tuple(f"windlass plugin try {path}:{name}" for name in classes),
        )
    raise WindlassError(
        INPUT_ERROR,
        f"{path} has no plugin class",
        evidence="a plugin class has a name and a method such as score and trend, filter, or admits",
        remedies=("windlass docs write-a-policy",),
    )


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """Turn an error of the plugin's own code into a message with its line. Others pass."""
    try:
        yield
    except SyntaxError as error:
        raise WindlassError(
            INPUT_ERROR, f"{path}:{error.lineno} is not valid Python: {error.msg}", remedies=(f"edit {path}",)
        ) from error
    except WindlassError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if path and Path(frame.filename).resolve() == Path(path).resolve()]
        if not own:
            raise
        raise WindlassError(
            INPUT_ERROR,
            f"{path}:{own[-1].lineno} raised {type(error).__name__}: {error}",
            evidence=f"the line is: {own[-1].line}",
            remedies=(f"edit {path}",),
        ) from error
