"""Output of objects as requested: JSON, YAML, names, a JSONPath template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.api.errors import WindlassError
from windlass.cli.invocation import Invocation

FORMATS = ("json", "yaml", "wide", "name", "jsonpath")
_FILE = "> FILE   (stores the output of this command; windlass logs JOB prints that of a job)"


def formats_text(formats: Sequence[str]) -> str:
    """Return the formats as ``json, yaml or jsonpath=TEMPLATE``."""
    shown = ["jsonpath=TEMPLATE" if form == "jsonpath" else form for form in formats]
    return " or ".join(part for part in (", ".join(shown[:-1]), shown[-1]) if part)


def check_format(text: str, formats: Sequence[str] = FORMATS) -> str:
    """Return the format. Raises :class:`WindlassError` if it is not among ``formats``."""
    form = text.partition("=")[0] if text.startswith("jsonpath=") else text
    if not form or (form in formats and text != "jsonpath"):
        return text
    if text == "jsonpath" and text in formats:
        raise WindlassError(
            "WL-USE-400",
            "-o jsonpath needs a template",
            evidence="the syntax is that of kubectl: -o jsonpath=TEMPLATE",
            remedies=("windlass get pods -o jsonpath='{.items[*].metadata.name}'",),
        )
    raise WindlassError(
        "WL-USE-400",
        f"-o {text} is not an output format{'' if formats == FORMATS else ' of this command'}",
        evidence=f"formats: {formats_text(formats)}",
        remedies=("-o json", *((_FILE,) if set(text) & set("./%") else ())),
    )


def to_json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value, order=None), indent=2).decode() + "\n"


def to_yaml(value: Any) -> str:
    import yaml

    return yaml.dump(
        value, Dumper=_dumper(), default_flow_style=False, sort_keys=False, allow_unicode=True, width=1 << 30
    )


def _dumper() -> Any:
    import yaml

    base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

    class Dumper(base):
        """Dumper that writes multi-line texts as blocks, without anchors."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Any, data: str) -> Any:
        style = "|" if "\n" in data and not data.startswith((" ", "\n")) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    Dumper.add_representer(str, text)
    return Dumper


def emit(invocation: Invocation, value: Any, *, names: Sequence[str] = ()) -> None:
    """Print ``value`` in the structured format of the invocation.

    ``names`` are for ``-o name``.
    """
    form = invocation.output
    if form == "json":
        invocation.out.write(to_json(value))
    elif form == "yaml":
        invocation.out.write(to_yaml(value))
    elif form == "name":
        invocation.out.write("".join(f"{name}\n" for name in names))
    else:
        invocation.out.write(_jsonpath(form, value))


def _jsonpath(form: str, value: Any) -> str:
    from windlass.cli.output import jsonpath

    template = form.partition("=")[2]
    try:
        return jsonpath.render(template, value)
    except jsonpath.PathError as error:
        raise WindlassError(
            "WL-USE-400",
            f"the JSONPath template is not valid: {error}",
            evidence=template,
            remedies=("windlass get pods -o jsonpath='{.items[*].metadata.name}'",),
        ) from error
