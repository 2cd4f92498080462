"""Python functions as templates: the function travels in the manifest as its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from windlass.sdk.workflows.templates import Artifact, Parameter, TemplateBase, container

Json = dict[str, Any]
_HEAD = """\
import contextlib, json, os, sys

def _input(name, as_text):
    text = os.environ["WINDLASS_INPUT_" + name]
    if as_text:
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text

"""


def script(
    *,
    name: str = "",
    image: str = "python:3.12",
    outputs: Sequence[Parameter | Artifact] = (),
    artifacts: Sequence[Artifact] = (),
    **fields: Any,
) -> Callable[[Callable[..., Any]], ScriptTemplate]:
    """Make a template of a function. A call of it in ``with DAG(…):`` adds a task.

    Its parameters are the inputs. A parameter with the annotation ``str`` gets the text, others the
    value of the JSON. What it returns is the result: text as it is, everything else as JSON; what it
    prints then goes to the log only. Without ``return``, the result is what it prints.
    ``artifacts``: inputs that are files; their parameter gets the path. The function may use what it
    imports itself, and nothing else of its module.
    """

    def made(function: Callable[..., Any]) -> ScriptTemplate:
        given = {one.name: one for one in artifacts}
        inputs: list[Parameter | Artifact | str] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise TypeError(f"{function.__name__} has *{parameter.name}: name each input of a script")
            default = None if parameter.default is parameter.empty else parameter.default
            inputs.append(given.get(parameter.name) or Parameter(parameter.name, default))
        return ScriptTemplate(
            name=name or function.__name__.replace("_", "-"),
            function=function,
            image=image,
            inputs=inputs,
            outputs=outputs,
            **fields,
        )

    return made


@dataclass(kw_only=True)
class ScriptTemplate(TemplateBase):
    """Template of a function (:func:`script`). ``function`` is the function itself, for tests."""

    function: Callable[..., Any]
    image: str = "python:3.12"
    command: Sequence[str] = ("python3",)
    env: Mapping[str, Any] = field(default_factory=dict)
    gpus: int = 0
    resources: Mapping[str, Any] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)

    def body(self) -> Json:
        env = {
            **{f"WINDLASS_INPUT_{name}": self.input(name) for name in self._parameters()},
            **self.env,
        }
        made = container(self.image, self.command, (), env, self.gpus, self.resources, self.mounts)
        return {"script": {**made, "source": self.source()}}

    def _parameters(self) -> list[str]:
        return [one.name for one in self.inputs if isinstance(one, Parameter)]

    def source(self) -> str:
        """Return the program of the template. Raises ``ValueError`` for two opening braces in it."""
        found = self._source()
        if "{{" in found:
            line = next(one.strip() for one in found.splitlines() if "{{" in one)
            raise ValueError(
                f"{self.function.__name__} has two opening braces, which a workflow reads as a value: {line!r}; "
                'write "{" + "{" or chr(123)'
            )
        return found

    @property
    def returns(self) -> bool:
        return _returns(self._tree())

    def _tree(self) -> ast.FunctionDef | ast.AsyncFunctionDef:
        function = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        return function

    def _source(self) -> str:
        function = self._tree()
        function.decorator_list = []
        wants_text = {
            one.arg
            for one in (*function.args.args, *function.args.kwonlyargs)
            if isinstance(one.annotation, ast.Name) and one.annotation.id == "str"
        }
        for one in (*function.args.args, *function.args.kwonlyargs):
            one.annotation = None
        returns, function.returns = _returns(function), None
        values: list[str] = []
        for entry in self.inputs:
            if isinstance(entry, Artifact):
                values.append(f"{entry.name}={entry.path!r}")
            elif isinstance(entry, Parameter):
                values.append(f"{entry.name}=_input({entry.name!r}, {entry.name in wants_text})")
        call = f"{self.function.__name__}({', '.join(values)})"
        if not returns:
            return f"{_HEAD}{ast.unparse(function)}\n\n{call}\n"
        return (
            f"{_HEAD}{ast.unparse(function)}\n\n"
            f"with contextlib.redirect_stdout(sys.stderr):\n    _value = {call}\n"
            "print(_value if isinstance(_value, str) else json.dumps(_value))\n"
        )


def _returns(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function returns a value. Functions inside of it do not count."""
    left: list[ast.AST] = list(function.body)
    while left:
        node = left.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Return) and node.value is not None:
            return True
        left.extend(ast.iter_child_nodes(node))
    return False
