"""Python functions of ``windlass generate``: their file is read, and never run."""

from __future__ import annotations

import ast
import difflib
import importlib.util
import os
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from windlass.api.errors import WindlassError
from windlass.cli.generation.remedies import again

if TYPE_CHECKING:
    from windlass.cli.generation.manifest import GenerationRequest

_DYNAMIC = frozenset({"globals", "exec", "setattr", "vars", "__getattr__", "*"})
"""Names with which a module can define others while it runs."""
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_SHOWN = 8
"""Maximum number of names of a module that a message lists."""


def check_function(request: GenerationRequest, flag: str) -> None:
    """Raise :class:`WindlassError` for a function that is not on this machine.

    ``flag``: ``--function`` or ``--scorer``. A module that is compiled, or that defines its names
    while it runs, is left to the workers.
    """
    field = flag.removeprefix("--")
    reference = str(getattr(request, field))
    module, colon, name = reference.partition(":")
    top = module.partition(".")[0]
    here = os.path.isfile(f"{top}.py") or os.path.isdir(top)
    if not (colon and top.isidentifier() and (here or importlib.util.find_spec(top) is not None)):
        raise WindlassError(
            "WL-GENERATE-422",
            f"{flag} {reference} does not name a function",
            evidence=f"the format is MODULE:NAME, and there is no module {top} in {os.getcwd()} "
            "or among the packages",
            remedies=(f"grep -n '^def ' {shlex.quote(os.getcwd())}/*.py",),
        )
    path = _source(module)
    tree = _parsed(path, f"{flag} {reference}") if path else None
    if tree is None or path is None:
        return
    names = set(_names(tree.body))
    wanted = name.partition(".")[0]
    if wanted in names or _defines_more(tree):
        return
    defined = [node.name for node in tree.body if isinstance(node, _DEFINITIONS)]
    shown = ", ".join(defined[:_SHOWN]) + (", …" if len(defined) > _SHOWN else "")
    near = difflib.get_close_matches(wanted, defined, 1) or defined[:1]
    look = f"grep -nE '^(async def|def|class) ' {shlex.quote(path)}"
    raise WindlassError(
        "WL-GENERATE-422",
        f"{flag} {reference} names the function {wanted}, and {path} does not define it",
        evidence=f"it defines {shown or 'no function'}",
        remedies=(look, again(request, **{field: f"{module}:{near[0]}"})) if near else (look,),
    )


def _source(module: str) -> str | None:
    """Return the file of a module as the workers find it; ``None`` if it has none that can be read."""
    place = os.path.join(os.getcwd(), *module.split("."))
    for path in (f"{place}.py", os.path.join(place, "__init__.py")):
        if os.path.isfile(path):
            return path
    top = module.partition(".")[0]
    if top != module or os.path.isdir(top):
        return None  # to find a module of a package would run the package
    found = importlib.util.find_spec(module)
    return found.origin if found is not None and found.origin and found.origin.endswith(".py") else None


def _parsed(path: str, given: str) -> ast.Module | None:
    try:
        with open(path, "rb") as stream:
            return ast.parse(stream.read(), path)
    except SyntaxError as error:
        raise WindlassError(
            "WL-GENERATE-422",
            f"{given} cannot be imported: {path} is not valid Python",
            evidence=f"line {error.lineno}: {error.msg}",
            remedies=(f"python3 -m py_compile {shlex.quote(path)}",),
        ) from None
    except (OSError, ValueError):
        return None


def _names(body: list[ast.stmt]) -> Iterator[str]:
    """Return the names that statements define in their module, with those in ``if`` and ``try``."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, _DEFINITIONS):
            yield node.name
            continue
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        waiting.extend(ast.iter_child_nodes(node))


def _defines_more(tree: ast.Module) -> bool:
    """Return whether a module may have names that its text does not tell."""
    for node in ast.walk(tree):
        name = ""
        if isinstance(node, ast.Name):
            name = node.id
        elif isinstance(node, ast.FunctionDef | ast.alias):
            name = node.name
        if name in _DYNAMIC or isinstance(node, ast.Global):
            return True
    return False
