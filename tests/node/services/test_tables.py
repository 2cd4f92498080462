"""Listeners and variables of Services."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.node.services.environment import service_environment
from windlass.node.services.tables import (
    EndpointSlice,
    NodeService,
    ServiceAddresses,
    decode_endpoint_slice,
    decode_node_service,
    listeners,
)

Json = dict[str, Any]


def service(name: str = "web", namespace: str = "default", **spec: Any) -> NodeService:
    fields = {"clusterIP": "10.96.3.9", "ports": [{"name": "http", "port": 80}], **spec}
    record = {"metadata": {"name": name, "namespace": namespace, "uid": "u"}, "spec": fields}
    return decode_node_service(msgspec.Raw(msgspec.json.encode(record)))


def endpoints(*conditions: Json, ports: list[Json] | None = None, **more: Any) -> EndpointSlice:
    record = {
        "metadata": {
            "name": "web-1",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": ports or [{"name": "http", "port": 8080, "protocol": "TCP"}],
        "endpoints": [
            {"addresses": [f"100.64.0.{number}"], "conditions": found}
            for number, found in enumerate(conditions, 1)
        ],
        **more,
    }
    decoded = decode_endpoint_slice(msgspec.Raw(msgspec.json.encode(record)))
    assert decoded is not None
    return decoded


def served(one: NodeService, *slices: EndpointSlice) -> tuple[list[Json], list[Json]]:
    found = {f"default/{one.name}": {str(number): entry for number, entry in enumerate(slices)}}
    return listeners([one], found)


READY = {"ready": True, "serving": True, "terminating": False}
ENDING = {"ready": False, "serving": True, "terminating": True}
UNREADY = {"ready": False, "serving": False, "terminating": False}


def test_ready_endpoints_of_all_slices_are_served() -> None:
    other = endpoints(READY, ports=[{"name": "http", "port": 9090}])
    cluster, node = served(service(), endpoints(READY, UNREADY, ENDING), other)
    assert [(one["address"], one["number"]) for one in cluster] == [("10.96.3.9", 80)]
    assert cluster[0]["backends"] == [["100.64.0.1", 8080], ["100.64.0.1", 9090]]
    assert node == []


def test_ending_endpoints_are_served_only_without_ready_ones() -> None:
    cluster, _ = served(service(), endpoints(UNREADY, ENDING))
    assert cluster[0]["backends"] == [["100.64.0.2", 8080]]
    assert served(service(), endpoints(UNREADY)) == ([], [])


def test_node_ports_listen_on_the_loopback_address() -> None:
    ports = [{"name": "http", "port": 80, "nodePort": 30123}, {"name": "dns", "port": 53, "protocol": "UDP"}]
    one = service(type="NodePort", ports=ports, sessionAffinity="ClientIP")
    slice_ports = [
        {"name": "http", "port": 8080, "protocol": "TCP"},
        {"name": "dns", "port": 5353, "protocol": "UDP"},
    ]
    cluster, node = served(one, endpoints(READY, ports=slice_ports))
    assert [(one["protocol"], one["number"]) for one in cluster] == [("TCP", 80), ("UDP", 53)]
    assert [(one["address"], one["number"]) for one in node] == [("127.0.0.1", 30123)]
    assert node[0]["affinity_seconds"] == 10800


def test_services_without_cluster_address_have_no_listener() -> None:
    for spec in ({"clusterIP": "None"}, {"type": "ExternalName", "externalName": "a.example."}):
        one = service(**spec)
        assert served(one, endpoints(READY)) == ([], [])
        assert one.headless is (one.external_name == "")


def test_slices_without_service_or_of_another_family_are_left_out() -> None:
    for change in ({"metadata": {"name": "x"}}, {"addressType": "IPv6"}):
        record = {
            "metadata": {"name": "x", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            **change,
        }
        assert decode_endpoint_slice(msgspec.Raw(msgspec.json.encode(record))) is None


def test_variables_are_those_of_the_kubelet() -> None:
    ports = [{"name": "http", "port": 80}, {"name": "my-dns", "port": 53, "protocol": "UDP"}]
    web = service("my-web", ports=ports)
    master = service("kubernetes", clusterIP="10.96.0.1", ports=[{"name": "https", "port": 443}])
    foreign = service("other", namespace="else")
    headless = service("peers", clusterIP="None")
    every = [web, foreign, headless, master]
    found = service_environment(every, "default", ServiceAddresses(), links=True)
    assert {name: text for name, text in found.items() if name.startswith("MY_WEB")} == {
        "MY_WEB_SERVICE_HOST": "10.96.3.9",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_SERVICE_PORT_MY_DNS": "53",
        "MY_WEB_PORT": "tcp://10.96.3.9:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.96.3.9:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.96.3.9",
        "MY_WEB_PORT_53_UDP": "udp://10.96.3.9:53",
        "MY_WEB_PORT_53_UDP_PROTO": "udp",
        "MY_WEB_PORT_53_UDP_PORT": "53",
        "MY_WEB_PORT_53_UDP_ADDR": "10.96.3.9",
    }
    assert not any(name.startswith(("OTHER", "PEERS")) for name in found)
    alone = service_environment(every, "else", ServiceAddresses("127.50"), links=False)
    assert alone["KUBERNETES_SERVICE_HOST"] == "127.50.0.1"
    assert not any(name.startswith(("OTHER", "MY_WEB")) for name in alone)
