import uuid
from random import Random

from windlass.kits import rng


def test_the_same_seed_gives_the_same_names_and_ids():
    assert rng.name_suffix(Random(3)) == rng.name_suffix(Random(3))
    assert rng.uid(Random(3)) == rng.uid(Random(3))


def test_ids_are_version_4_and_names_avoid_vowels():
    generator = rng.system()
    assert uuid.UUID(rng.uid(generator)).version == 4
    assert set(rng.name_suffix(generator, 200)) <= set(rng.NAME_ALPHABET)
    assert not set(rng.NAME_ALPHABET) & set("aeiou01")
