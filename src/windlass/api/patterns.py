"""Regular expressions of HyperNodes, in the syntax of Go's ``regexp`` (RE2).

Volcano compiles them with Go. Python's ``re`` reads some of this syntax differently and accepts
more, so the same HyperNode would mean other nodes.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

_ESCAPES = re.compile(r"\\Q.*?(?:\\E|$)|\\(.)", re.DOTALL)


class PatternError(ValueError):
    """The text is not a regular expression of Go."""


class Pattern(Protocol):
    """Compiled pattern."""

    def search(self, text: str, /) -> object:
        """Return a match anywhere in ``text``, or ``None``."""
        ...


@lru_cache(maxsize=128)
def compiled(text: str) -> Pattern:
    """Return the compiled pattern. Raises :class:`PatternError`."""
    import re2  # only clusters with HyperNodes need it

    if any(match[1] == "C" for match in _ESCAPES.finditer(text)):
        raise PatternError(r"invalid escape sequence: \C")  # of the C++ library alone
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except UnicodeEncodeError as error:
        raise PatternError(str(error)) from None
    except re2.error as error:
        reason = error.args[0]
        raise PatternError(reason.decode() if isinstance(reason, bytes) else str(reason)) from None
