"""Bodies: media types, kinds, and the words for what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.api.errors import StatusError
from windlass.api.resources import CONFIG_MAPS, PODS, QUEUES
from windlass.api.wire import decode


def refusal(resource: Any, body: bytes, content_type: str = "application/json") -> StatusError:
    with pytest.raises(StatusError) as caught:
        decode.decode_body(resource, content_type, body)
    return caught.value


def test_kind_and_version_are_filled_in_for_builtin_kinds() -> None:
    obj = decode.decode_body(CONFIG_MAPS, "", b'{"metadata":{"name":"a"}}')
    assert (obj["apiVersion"], obj["kind"]) == ("v1", "ConfigMap")


def test_json_and_yaml_mean_the_same() -> None:
    yaml = b"metadata:\n  name: a\ndata: {x: 'y'}\n"
    expected = decode.decode_body(
        CONFIG_MAPS, "application/json", b'{"metadata":{"name":"a"},"data":{"x":"y"}}'
    )
    for media in ("application/yaml", "application/yaml; charset=utf-8", "text/yaml"):
        assert decode.decode_body(CONFIG_MAPS, media, yaml) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (
            b'{"kind":"Pod"',
            "the object provided is unrecognized (must be of type Pod): couldn't get version/kind; json parse error: "
            'unexpected end of JSON input ({"kind":"Pod")',
        ),
        (b"", "unexpected end of JSON input (<empty>)"),
        (b'{"metadata":{"name":"x"}} trailing', "invalid character 't' after top-level value"),
        (b"{,}", "invalid character ',' looking for beginning of object key string"),
        (b"{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":x}', "invalid character 'x' looking for beginning of value"),
        (b"[]", "json: cannot unmarshal array into Go value of type struct"),
        (b"null", "json: cannot unmarshal null into Go value"),
        (b'{"a":"\xff"}', "invalid character"),
        (b'{"kind":5}', 'cannot unmarshal number into Go struct field .kind of type string ({"kind":5})'),
    ],
)
def test_broken_json(body: bytes, message: str) -> None:
    error = refusal(PODS, body)
    assert (error.code, error.reason) == (400, "BadRequest")
    assert message in error.message


def test_broken_yaml() -> None:
    error = refusal(PODS, b"a: [", "application/yaml")
    assert "error converting YAML to JSON: yaml: line" in error.message
    assert "expected one document, found 2" in refusal(PODS, b"a: 1\n---\nb: 2", "application/yaml").message


def test_media_types() -> None:
    assert refusal(PODS, b"x", "text/html").code == 415
    assert refusal(QUEUES, b"k8s\0", "application/vnd.kubernetes.protobuf").code == 415
    assert "protobuf" not in refusal(QUEUES, b"x", "text/html").message


def test_another_kind() -> None:
    error = refusal(PODS, b'{"apiVersion":"v1","kind":"Service"}')
    assert error.message.startswith('Service in version "v1" cannot be handled as a Pod')
    assert 'no kind "Foo" is registered' in refusal(PODS, b'{"apiVersion":"apps/v1","kind":"Foo"}').message


def test_custom_kinds_must_state_kind_and_version() -> None:
    assert "Object 'Kind' is missing" in refusal(QUEUES, b"{}").message
    assert "apiVersion: scheduling.volcano.sh/v1beta1" in refusal(QUEUES, b'{"kind":"Queue"}').message
    wrong = refusal(QUEUES, b'{"kind":"Queue","apiVersion":"scheduling.volcano.sh/v2"}')
    assert wrong.message == (
        "the API version in the data (scheduling.volcano.sh/v2) does not match the expected API version "
        "(scheduling.volcano.sh/v1beta1)"
    )
    assert (
        "expected kind (Queue)"
        in refusal(QUEUES, b'{"kind":"PodGroup","apiVersion":"scheduling.volcano.sh/v1beta1"}').message
    )


def test_delete_options() -> None:
    assert decode.decode_options("", b"") == {}
    assert decode.decode_options("application/json", b'{"gracePeriodSeconds":0,"x":1}') == {
        "gracePeriodSeconds": 0
    }
    with pytest.raises(StatusError, match=r"DeleteOptions\.gracePeriodSeconds of type int64"):
        decode.decode_options("application/json", b'{"gracePeriodSeconds":"x"}')
    with pytest.raises(StatusError) as caught:
        decode.decode_options("text/html", b"x")
    assert caught.value.code == 415


_keys = st.sampled_from(["a", "b", 'quote"', "colon:", "x y"])
_value = st.recursive(
    st.integers(0, 9) | st.sampled_from(['":', "text", '"a":']),
    lambda inner: st.lists(inner, max_size=2) | st.lists(st.tuples(_keys, inner), max_size=3).map(tuple),
    max_leaves=8,
)


def _render(value: Any, path: str, twice: list[str], colon: str) -> str:
    """JSON text with keys as often as they were drawn; the paths of repeated ones are noted."""
    if isinstance(value, tuple):
        parts, last = [], {}
        for key, item in value:
            inner = f"{path}.{key}" if path else key
            last[inner] = last.get(inner, 0) + 1
            parts.append(json.dumps(key) + colon + _render(item, inner, [], colon))
        final = dict(value)
        for key, item in final.items():
            inner = f"{path}.{key}" if path else key
            if last[inner] > 1:
                twice.append(inner)
            _render(item, inner, twice, colon)
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return (
            "[" + ",".join(_render(item, f"{path}[{i}]", twice, colon) for i, item in enumerate(value)) + "]"
        )
    return json.dumps(value)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(_keys, _value), max_size=4).map(tuple), st.sampled_from([":", ": ", " : ", "\n\t:"])
)
def test_duplicates_are_found_at_any_depth(value: Any, colon: str) -> None:
    twice: list[str] = []
    text = _render(value, "", twice, colon)
    body = decode.parse_json("Pod", text.encode())
    assert sorted(getattr(body, "duplicates", ())) == sorted(twice)
    assert body == json.loads(text)
