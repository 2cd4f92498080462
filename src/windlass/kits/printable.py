"""Text for terminals: that of users made visible, and articles of names."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""Return the text with control and direction characters as escapes, such as ``\u202e``.

    A terminal would obey them, and the line would read otherwise than it is. Line breaks
    and blanks stay.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter.isspace() else _escape(letter) for letter in text)


def with_article(name: str) -> str:
    """Return a name with its indefinite article, such as ``an XGBoostJob`` or ``a PyTorchJob``."""
    spelled = name[:2].isupper()
    return f"{'an' if name[:1] in ('AEFHILMNORSX' if spelled else 'AEIOaeio') else 'a'} {name}"


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
