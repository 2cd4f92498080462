"""Text of users, for terminals."""

from __future__ import annotations


def visible(text: str) -> str:
    r"""Return the text with control and direction characters as escapes, such as ``\u202e``.

    A terminal would obey them, and the line would read otherwise than it is. Line breaks
    and blanks stay.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter.isspace() else _escape(letter) for letter in text)


def _escape(letter: str) -> str:
    return letter.encode("unicode_escape").decode("ascii")
