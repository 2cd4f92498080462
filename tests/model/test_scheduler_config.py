"""The scheduler's configuration: every form that is read, and every way to get it wrong."""

from __future__ import annotations

import pytest

from windlass.model.scheduler_config import ConfigError, parse, text_of
from windlass.spi.configuration import PluginOption, PluginTier, SchedulerConfig

SHIPPED = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
    arguments:
      overcommit-factor: 1.5
  - name: drf
    enabledPreemptable: false
configurations:
- name: enqueue
  arguments: {overcommit-factor: 1.0}
metrics: {type: prometheus, address: 'http://prometheus:9090', interval: 15s}
"""
"""Both prefixes of a switch mean the same."""


def test_volcanos_own_file() -> None:
    parsed = parse(SHIPPED)
    assert parsed.notes == ()
    assert parsed.config == SchedulerConfig(
        actions=("enqueue", "allocate", "backfill"),
        tiers=(
            PluginTier(
                (
                    PluginOption("priority"),
                    PluginOption("gang", {"enablePreemptable": False}),
                    PluginOption("conformance"),
                )
            ),
            PluginTier(
                (
                    PluginOption("overcommit", {}, {"overcommit-factor": 1.5}),
                    PluginOption("drf", {"enablePreemptable": False}),
                )
            ),
        ),
        configurations={"enqueue": {"overcommit-factor": 1}},
        metrics={"type": "prometheus", "address": "http://prometheus:9090", "interval": "15s"},
    )


@pytest.mark.parametrize(
    ("metrics", "note"),
    [
        ("{type: graphite, address: 'http://x'}", "metrics.type is 'graphite', not one of prometheus,"),
        ("{address: 'http://x'}", "metrics.type is '', not one of"),
        ("{type: prometheus_adaptor}", "metrics.type prometheus_adaptor: loads are read from the cluster's"),
        ("{type: elasticsearch}", "metrics.address is missing: loads are read from the cluster's"),
        ("{type: prometheus, address: 'http://x', adress: y}", "metrics.adress is not known and not used"),
    ],
)
def test_unusable_load_source_is_reported(metrics: str, note: str) -> None:
    (told,) = parse(f"actions: allocate\nmetrics: {metrics}\n").notes
    assert told.startswith("line 2: ")
    assert note in told


def test_load_source() -> None:
    text = "{type: elasticsearch, address: 'https://es:9200', tls.insecureSkipVerify: true, elasticsearch.index: 7}"
    found = parse(f"actions: allocate\nmetrics: {text}\n")
    assert found.notes == ()
    assert found.config.metrics == {
        "type": "elasticsearch",
        "address": "https://es:9200",
        "tls.insecureSkipVerify": "true",
        "elasticsearch.index": "7",
    }
    with pytest.raises(ConfigError, match="is not a URL"):
        parse("actions: allocate\nmetrics: {type: prometheus, address: 'prometheus:9090'}\n")
    with pytest.raises(ConfigError, match="neither true nor false"):
        parse("actions: allocate\nconfigurations: [{name: backfill, arguments: {learned: perhaps}}]\n")


def _config_map(text: str) -> str:
    inner = "".join(f"    {line}\n" for line in text.strip().splitlines())
    return f"apiVersion: v1\nkind: ConfigMap\ndata:\n  volcano-scheduler.conf: |\n{inner}"


def test_a_config_map_is_its_text() -> None:
    assert parse(_config_map(SHIPPED)).config == parse(SHIPPED).config
    assert text_of({"volcano-scheduler.conf": "x", "notes": "y"}) == "x"
    with pytest.raises(ConfigError, match="2 texts"):
        text_of({"a.conf": "", "b.conf": ""})


def test_lines_are_those_of_the_file_also_inside_a_config_map() -> None:
    bad = "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableJobOder: true"
    with pytest.raises(ConfigError) as caught:
        parse(bad)
    assert caught.value.line == 5
    with pytest.raises(ConfigError) as caught:
        parse(_config_map(bad))
    assert caught.value.line == 9
    assert parse(_config_map(SHIPPED)).line_of("tiers[0].plugins[1].enablePreemptable") == 10


def test_scorers_on_their_own_and_arguments_as_json() -> None:
    parsed = parse(
        "tiers:\n- plugins:\n  - name: predicates\nnodeorder:\n- name: gpu-aware\n"
        '  args: |\n    {"gpuMemoryWeight": 0.5}\n'
    )
    assert parsed.config.actions == ("enqueue", "allocate", "backfill")
    assert parsed.config.plugins == (PluginOption("gpu-aware", {}, {"gpuMemoryWeight": 0.5}),)
    assert set(parsed.notes) == {
        "default: no actions -> enqueue, allocate, backfill",
        "alias: args as a JSON text -> arguments as a map",
        "alias: top-level nodeorder list -> node scorer gpu-aware with gpuMemoryWeight 0.5",
        "default: no gang plug-in in the tiers -> gang stays on "
        "(all-or-nothing is never switched off by omission)",
    }


def test_flags_instead_of_a_policy_change_no_policy() -> None:
    parsed = parse("# tuning\n--enable-queue-schedule=true\n--scheduler-worker-threads=16\n")
    assert parsed.config == SchedulerConfig()
    assert len(parsed.notes) == 3


def test_placement_plugins_extend_the_default_policy() -> None:
    parsed = parse(
        "actions: allocate\ntiers:\n- plugins:\n  - name: nodeplacement\n    arguments: {gpu: spread}\n"
    )
    assert parsed.config.tiers == ()
    assert parsed.config.plugins == (PluginOption("nodeplacement", {}, {"gpu": "spread"}),)


def test_unknown_keys_are_reported_with_suggestions() -> None:
    parsed = parse("actions: allocate\ntires: []\ntiers:\n- plugins:\n  - name: gang\n    argument: {}\n")
    assert parsed.notes == (
        "line 2: tires is not known and not used; did you mean tiers?",
        "line 6: tiers[0].plugins[0].argument is not known and not used; did you mean arguments?",
    )


@pytest.mark.parametrize(
    ("text", "line", "field", "message", "remedy"),
    [
        ("", 0, "", "the file is empty", 'write at least: actions: "allocate"'),
        ("- a\n", 1, "", "is not a mapping", "actions"),
        ("actions: [allocate", 2, "", "expected", ""),
        (
            "a: 1\nactions: alocate",
            2,
            "actions",
            "'alocate', which is not an action",
            "did you mean allocate?",
        ),
        ("actions: fly", 1, "actions", "not an action", "actions are enqueue"),
        ("actions: 3", 1, "actions", "is not a text", "write actions:"),
        ("actions: ' , '", 1, "actions", "names no action", "actions are"),
        ("actions: [allocate, allocate]", 1, "actions", "names allocate twice", ""),
        ("actions: a\nactions: b", 2, "actions", "occurs twice", ""),
        ("tiers: {}", 1, "tiers", "is not a list", ""),
        ("tiers: [3]", 1, "tiers[0]", "is not a mapping", ""),
        ("tiers:\n- plugins:\n  - gang", 3, "tiers[0].plugins[0]", "is not a mapping", ""),
        ("tiers:\n- plugins:\n  - nme: gang", 3, "tiers[0].plugins[0]", "has no name", "- name: gang"),
        (
            "tiers:\n- plugins:\n  - name: gang\n    enableJobOrder: 1",
            4,
            "tiers[0].plugins[0].enableJobOrder",
            "is 1",
            "write true or false",
        ),
        (
            "tiers:\n- plugins:\n  - name: gang\n    arguments: 1",
            4,
            "tiers[0].plugins[0].arguments",
            "is not a mapping",
            "",
        ),
        (
            "nodeorder:\n- name: x\n  args: '{'",
            3,
            "nodeorder[0].args",
            "is not valid JSON",
            "write arguments",
        ),
        (
            "configurations:\n- name: backfill\n  arguments: {reservations: all}",
            3,
            "configurations[0].arguments.reservations",
            "'all' is not one of easy, conservative, none",
            "reservations: easy",
        ),
        (
            "configurations:\n- name: backfill\n  arguments: {aging: soon}",
            3,
            "configurations[0].arguments.aging",
            "'soon' is not a duration",
            "aging: 1h",
        ),
        ("configurations:\n- arguments: {}", 2, "configurations[0]", "has no name", "- name: preempt"),
        ("compatibility: kai", 1, "compatibility", "is 'kai'", "write windlass or volcano"),
        ("kind: ConfigMap\ndata: {}", 2, "data", "0 texts", "keep one key"),
    ],
)
def test_errors_have_line_field_and_remedy(
    text: str, line: int, field: str, message: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    error = caught.value
    assert (error.line, error.field) == (line, field)
    assert message in error.message
    assert error.remedy.startswith(remedy) or remedy in error.remedy
