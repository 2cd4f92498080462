"""Numbers that the index of the published manifests states in words, and how an object differs from them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from field_outcomes import FieldObject

MPI = {"OMPI_MCA_orte_default_hostfile"}
"""The index describes the environment of an MPI launcher in words."""


def pods_stated(text: str) -> int | None:
    """Return the number of pods that a text names."""
    for form in (
        r"= (\d+) pods",
        r"(?:^|: )(\d+) pods? at once",
        r"(\d+) pods? kept running",
        r"(?:^|: )(\d+) pods?: ",
    ):
        found = re.search(form, text)
        if found:
            return int(found[1])
    roles = roles_stated(text)
    return sum(roles.values()) if roles else None


def roles_stated(text: str) -> dict[str, int]:
    """Return role → number of pods."""
    jobs = re.findall(r"([\w-]+) (\d+) job×(\d+) pods", text)
    if jobs:
        return {name: int(count) * int(pods) for name, count, pods in jobs}
    groups = re.search(r"(\d+) group\(s\) of (\d+)", text)
    if groups:
        count, size = int(groups[1]), int(groups[2])
        return {"leader": count, "worker": count * (size - 1)}
    return {name: int(count) for name, count in re.findall(r"([\w-]+)×(\d+)", text) if int(count)}


def gangs_stated(text: str) -> list[int]:
    """Return ``minMember`` of each gang."""
    groups = re.search(r"(\d+) group\(s\).* gang (\d+) per group", text)
    if groups:
        return [int(groups[2])] * int(groups[1])
    if "minMember = all replicas" in text:
        return [sum(roles_stated(text).values())]
    found = re.search(r"gang (?:minAvailable )?(\d+)", text)
    return [int(found[1])] if found else []


def environment_stated(text: str) -> set[str]:
    """Return names of variables, with ``*`` for any end."""
    found = re.search(r"env (.*?)(?:; gang|$)", text)
    if found is None:
        return {"JOB_COMPLETION_INDEX"} if "Indexed (JOB_COMPLETION_INDEX)" in text else set()
    if "hostfile" in found[1]:
        return MPI
    names = set()
    for word in re.sub(r"\(.*?\)|=[^,\s]+", "", found[1]).replace(";", ",").split(","):
        first, *others = word.strip().split("/")
        names |= {first, *(f"{first.rpartition('_')[0]}_{other}" for other in others)} - {""}
    return names


def differences(found: FieldObject) -> list[str]:
    """Return in what an accepted object differs from its text: pods, roles, gang, environment."""
    pods = found.pods
    if pods is None:
        return []
    if pods.problem:
        return [f"no pods: {pods.problem}"]
    told = []
    stated = pods_stated(found.expected)
    if nodes := re.search(r": (\d+) node pods", found.expected):
        steps = {role: count for role, count in pods.roles.items() if role in ("launcher", "node")}
        stated, total = int(nodes[1]), sum(steps.values())  # initializers are not counted
    else:
        total = pods.total
    if stated is not None and total != stated:
        told.append(f"{total} pods instead of {stated}")
    roles = roles_stated(found.expected)
    if roles and pods.roles != roles:
        told.append(f"roles {pods.roles} instead of {roles}")
    gangs = gangs_stated(found.expected)
    if gangs and pods.gangs != gangs:
        told.append(f"gang {pods.gangs} instead of {gangs}")
    missing = {
        name
        for name in environment_stated(found.expected)
        if not any(fnmatchcase(one, name) for one in pods.environment)
    }
    if missing:
        told.append(f"without {', '.join(sorted(missing))}")
    return told
