"""Published manifests of the job kinds are accepted or refused by field, and make the pods of their index.

``UPDATE_GOLDEN=1`` writes the page that lists them.
"""

from __future__ import annotations

import os

import pytest
from field_index import differences, gangs_stated, pods_stated
from field_outcomes import FieldManifest, FieldObject, manifests
from field_page import DEVIATIONS, NOT_SERVED, NOTES, PAGE, REFUSED, UNKNOWN, kind_of, page

Key = tuple[str, str]


@pytest.fixture(scope="module")
def published() -> list[FieldManifest]:
    return manifests()


def by_key(published: list[FieldManifest]) -> dict[Key, list[FieldObject]]:
    found: dict[Key, list[FieldObject]] = {}
    for manifest in published:
        for one in manifest.objects:
            found.setdefault((manifest.name, kind_of(one)), []).append(one)
    return found


def test_every_object_is_accepted_or_refused_with_the_field(published: list[FieldManifest]) -> None:
    found = by_key(published)
    refused = {key: ", ".join(one.fields) for key, ones in found.items() for one in ones if one.fields}
    unknown = {key: ", ".join(one.unknown) for key, ones in found.items() for one in ones if one.unknown}
    assert refused == {key: fields for key, (fields, _) in REFUSED.items()}
    assert unknown == {key: fields for key, (fields, _) in UNKNOWN.items()}
    absent = {one.kind.partition("/")[0] for ones in found.values() for one in ones if not one.served}
    assert absent == set(NOT_SERVED)
    assert sum(1 for ones in found.values() for one in ones if one.pods is not None) >= 75


def test_pods_gangs_and_environment_are_those_of_the_index(published: list[FieldManifest]) -> None:
    found = by_key(published)
    differing = {
        key: tuple(told) for key, ones in found.items() for one in ones if (told := differences(one))
    }
    assert differing == {key: told for key, (told, _) in DEVIATIONS.items()}
    assert NOTES.keys() <= found.keys()
    derived = [one for ones in found.values() for one in ones if one.pods is not None]
    assert sum(1 for one in derived if pods_stated(one.expected) is not None) >= 65
    assert sum(1 for one in derived if gangs_stated(one.expected)) >= 40


def test_the_page_is_up_to_date(published: list[FieldManifest]) -> None:
    text = page(published)
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "run this test once with UPDATE_GOLDEN=1"
