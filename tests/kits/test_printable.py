"""Text for terminals."""

from __future__ import annotations

from windlass.kits.printable import visible, with_article


def test_control_characters_are_shown_as_escapes() -> None:
    assert visible("a\x1b[31m\u202eb\n") == "a\\x1b[31m\\u202eb\n"


def test_names_have_the_article_by_which_they_are_read() -> None:
    kinds = ("XGBoostJob", "MPIJob", "AIGCJob", "JAXJob", "PyTorchJob", "TFJob", "RayJob", "Job", "Item")
    assert [with_article(kind).split()[0] for kind in kinds] == [
        *("an", "an", "an"),
        *("a", "a", "a", "a", "a"),
        "an",
    ]
