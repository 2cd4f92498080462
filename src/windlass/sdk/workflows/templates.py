"""Templates of a workflow: containers, jobs, objects and pauses, with their inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from windlass.sdk.workflows import context
from windlass.sdk.workflows.values import RunValue, as_text

if TYPE_CHECKING:
    from windlass.sdk.workflows.graphs import GraphTask

Json = dict[str, Any]


@dataclass(frozen=True)
class Parameter:
    """Parameter. ``path``: file of the pod that an output is read from. ``value``: default of an input."""

    name: str
    value: Any = None
    path: str = ""
    default: Any = None
    global_name: str = ""

    def as_input(self) -> Json:
        return {"name": self.name} | ({"value": as_text(self.value)} if self.value is not None else {})

    def as_output(self) -> Json:
        source: Json = {"path": self.path} if self.path else {}
        if isinstance(self.value, RunValue):
            source = {"parameter": str(self.value)}
        if self.default is not None:
            source["default"] = as_text(self.default)
        found: Json = {"name": self.name, "valueFrom": source}
        return found | ({"globalName": self.global_name} if self.global_name else {})


@dataclass(frozen=True)
class Artifact:
    """File or folder. ``path``: where it is in the pod. ``raw``: content of an input."""

    name: str
    path: str = ""
    raw: str | None = None
    optional: bool = False
    archive: bool | None = None

    def as_entry(self) -> Json:
        found: Json = {"name": self.name}
        if self.path:
            found["path"] = self.path
        if self.raw is not None:
            found["raw"] = {"data": self.raw}
        if self.optional:
            found["optional"] = True
        if self.archive is not None:
            found["archive"] = {"tar": {}} if self.archive else {"none": {}}
        return found


def entries(values: Sequence[Parameter | Artifact | str], *, outputs: bool) -> Json:
    """Return ``inputs`` or ``outputs`` of a template. A text is the name of a parameter."""
    found: Json = {}
    for value in values:
        one = Parameter(value) if isinstance(value, str) else value
        if isinstance(one, Parameter):
            entry = one.as_output() if outputs else one.as_input()
            found.setdefault("parameters", []).append(entry)
        else:
            found.setdefault("artifacts", []).append(one.as_entry())
    return found


@dataclass(kw_only=True)
class TemplateBase:
    """Fields that all templates have.

    ``retries``: further attempts. ``retry``: the fields of ``retryStrategy``, instead. ``timeout``: such as
    ``"10m"``. ``memoize``: key of the cache. ``fields``: further fields of the template, in Argo's form.
    """

    name: str
    inputs: Sequence[Parameter | Artifact | str] = ()
    outputs: Sequence[Parameter | Artifact | str] = ()
    retries: int = 0
    retry: Mapping[str, Any] = field(default_factory=dict)
    timeout: str = ""
    memoize: str = ""
    parallelism: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        context.add_template(self)

    @property
    def returns(self) -> bool:
        """True for functions that return a value, which is the result of their task."""
        return False

    def body(self) -> Json:
        """Return the fields of this kind of template."""
        raise NotImplementedError

    def build(self) -> Json:
        """Return the template in Argo's form."""
        found: Json = {"name": self.name}
        for key, values, is_output in (("inputs", self.inputs, False), ("outputs", self.outputs, True)):
            if values:
                found[key] = entries(values, outputs=is_output)
        found |= self.body()
        if self.retries or self.retry:
            found["retryStrategy"] = dict(self.retry) or {"limit": self.retries}
        if self.timeout:
            found["timeout"] = self.timeout
        if self.memoize:
            found["memoize"] = {"key": self.memoize, "cache": {"configMap": {"name": f"{self.name}-cache"}}}
        if self.parallelism:
            found["parallelism"] = self.parallelism
        return found | dict(self.fields)

    def input(self, name: str) -> RunValue:
        """Return a parameter of the template, for its command or its tasks."""
        return RunValue(f"{{{{inputs.parameters.{name}}}}}")

    def __call__(self, **arguments: Any) -> GraphTask:
        """Add a task with this template to the graph of the open block.

        Arguments are those of the template. Options of the task: see :class:`GraphTask`.
        """
        from windlass.sdk.workflows.graphs import add_task

        return add_task(self, arguments)


def container(
    image: str,
    command: Sequence[Any],
    args: Sequence[Any],
    env: Mapping[str, Any],
    gpus: int,
    resources: Mapping[str, Any],
    mounts: Mapping[str, str],
) -> Json:
    """Return a container. ``gpus``: limit of ``nvidia.com/gpu``. ``mounts``: path → name of a volume."""
    found: Json = {"image": image}
    if command:
        found["command"] = [str(one) for one in command]
    if args:
        found["args"] = [str(one) for one in args]
    if env:
        found["env"] = [{"name": key, "value": as_text(value)} for key, value in env.items()]
    if mounts:
        found["volumeMounts"] = [{"name": name, "mountPath": path} for path, name in mounts.items()]
    limits: Json = dict(resources.get("limits") or {})
    if gpus:
        limits["nvidia.com/gpu"] = gpus
    if limits or resources:
        found["resources"] = {**resources} | ({"limits": limits} if limits else {})
    return found


@dataclass(kw_only=True)
class ContainerTemplate(TemplateBase):
    """Command in a container. ``env``: values may be inputs of the template. ``mounts``: path → volume."""

    image: str = "python:3.12"
    command: Sequence[Any] = ()
    args: Sequence[Any] = ()
    env: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0
    resources: Mapping[str, Any] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> Json:
        made = container(
            self.image, self.command, self.args, self.env, self.gpus, self.resources, self.mounts
        )
        return {"container": made}


@dataclass(kw_only=True)
class JobTemplate(TemplateBase):
    """Job of any kind. ``manifest``: the object; ``parallel``: its degrees, which are checked."""

    manifest: Mapping[str, Any]
    parallel: Mapping[str, Any] = field(default_factory=dict)

    def body(self) -> Json:
        parallel = {"parallel": dict(self.parallel)} if self.parallel else {}
        return {"job": {"manifest": dict(self.manifest), **parallel}}


@dataclass(kw_only=True)
class ResourceTemplate(TemplateBase):
    """Object that the controller creates, with the conditions of success and failure."""

    manifest: str | Mapping[str, Any]
    action: str = "create"
    success: str = ""
    failure: str = ""

    def body(self) -> Json:
        from windlass.cli.output.formats import to_yaml

        text = self.manifest if isinstance(self.manifest, str) else to_yaml(dict(self.manifest))
        found: Json = {"action": self.action, "manifest": text}
        if self.success:
            found["successCondition"] = self.success
        if self.failure:
            found["failureCondition"] = self.failure
        return {"resource": found}


@dataclass(kw_only=True)
class SuspendTemplate(TemplateBase):
    """Pause until it is resumed, or for ``duration``."""

    duration: str = ""

    def body(self) -> Json:
        return {"suspend": {"duration": self.duration} if self.duration else {}}
