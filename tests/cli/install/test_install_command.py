"""What ``windlass install`` prints and refuses before any cluster is asked."""

from __future__ import annotations


def test_install_prints_no_objects_where_it_is_to_adopt(windlass):
    """They would be those of another command: nothing of the taking over is in them."""
    done = windlass("install", "--adopt", "kai", "-o", "yaml")
    assert (done.code, done.out) == (2, "")
    assert "try: windlass install --adopt kai --dry-run\n" in done.err


def test_install_tells_what_of_a_configuration_is_not_used(windlass, tmp_path):
    policy = tmp_path / "policy.yaml"
    policy.write_text("actions: allocate\nnonsense: 1\nplugins: [{name: gangg}]\n")
    done = windlass("install", "-o", "name", "--config", str(policy))
    assert done.code == 0
    assert f"{policy}: line 2: nonsense is not known and not used" in done.err
    assert f"{policy}: plugin 'gangg' is unknown and ignored" in done.err


def test_install_takes_no_empty_image_for_the_default(windlass):
    done = windlass("install", "-o", "name", "--image", "")
    assert (done.code, done.out) == (2, "")
    assert "--image is empty" in done.err
