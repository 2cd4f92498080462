"""A JobSet by itself: the rules of JobSet's webhooks and of its CRD, each with its remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from windlass.api.fields import jobset
from windlass.api.validation import names
from windlass.api.validation.collector import Collector, part
from windlass.api.validation.workloads.job_template import job_template
from windlass.api.wire import patch_types

Obj = Mapping[str, Any]
_NAME_LIMIT = 63
_POD_SUFFIX = 6
"""Characters that a Job appends to the name of an indexed pod, as in ``-abcde``."""
_INT32_MAX = 2**31 - 1
_RESTART_JOB_REPLICAS = 1024
"""Maximum number of replicas with an action that restarts one Job."""
_RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_RULE_NAME_LIMIT = 128
_IMMUTABLE = (
    "network",
    "successPolicy",
    "failurePolicy",
    "startupPolicy",
    "volumeClaimPolicies",
    "managedBy",
)
_WHILE_SUSPENDED = ("nodeSelector", "tolerations", "schedulingGates")


def job_set(obj: Obj, old: Obj | None, out: Collector) -> None:
    """Check a JobSet, which has its defaults."""
    metadata, spec = part(obj, "metadata"), part(obj, "spec")
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    check_spec(name, spec, "spec", out)
    if old is not None:
        _update(spec, part(old, "spec"), part(old, "status"), out)


def check_spec(name: str, spec: Obj, path: str, out: Collector) -> None:
    """Check the spec of a JobSet with this name."""
    replicated = [job for job in spec.get("replicatedJobs") or () if isinstance(job, Mapping)]
    _network(part(spec, "network"), f"{path}.network", out)
    known: set[str] = set()
    for index, job in enumerate(replicated):
        known.add(str(job.get("name") or ""))
        _replicated_job(name, spec, job, known, f"{path}.replicatedJobs[{index}]", out)
    if replicated and replicated[0].get("dependsOn"):
        out.forbidden(
            f"{path}.replicatedJobs[0].dependsOn",
            "DependsOn can't be set for the first ReplicatedJob: list the job that it depends on before it",
        )
    in_order = part(spec, "startupPolicy").get("startupPolicyOrder") == jobset.IN_ORDER
    if in_order and any("dependsOn" in job for job in replicated):
        out.forbidden(
            f"{path}.startupPolicy",
            "StartupPolicy and DependsOn APIs are mutually exclusive: remove startupPolicy",
        )
    targets = part(spec, "successPolicy").get("targetReplicatedJobs") or ()
    _targets(targets, known, f"{path}.successPolicy.targetReplicatedJobs", out)
    if spec.get("failurePolicy"):
        _failure_policy(part(spec, "failurePolicy"), replicated, known, f"{path}.failurePolicy", out)
    if spec.get("coordinator"):
        _coordinator(name, spec, replicated, f"{path}.coordinator", out)
    _claims(name, spec, replicated, path, out)
    manager = spec.get("managedBy")
    if manager is not None and ("/" not in manager or len(manager) > _NAME_LIMIT):
        out.invalid(
            f"{path}.managedBy",
            manager,
            "must be a domain and a path such as acme.io/foo, of at most 63 characters",
        )


def _network(network: Obj, path: str, out: Collector) -> None:
    subdomain = network.get("subdomain")
    if subdomain:
        out.each(f"{path}.subdomain", subdomain, names.dns_label(subdomain))


def _replicated_job(name: str, spec: Obj, job: Obj, known: set[str], path: str, out: Collector) -> None:
    replicas, template = jobset.replicas_of(job), jobset.job_spec(job)
    if jobset.pods_of_job({"parallelism": template.get("parallelism")}) * replicas > _INT32_MAX:
        out.invalid(
            f"{path}.replicas",
            replicas,
            f"the product of replicas and parallelism must not exceed {_INT32_MAX}",
        )
    group = job.get("groupName") or "default"
    out.each(f"{path}.groupName", group, names.dns_label(group))
    longest = jobset.job_name(name, str(job.get("name") or ""), max(0, replicas - 1))
    completions = template.get("completions")
    if template.get("completionMode") == "Indexed" and isinstance(completions, int):
        _length(f"{longest}-{max(0, completions - 1)}", "pod", _POD_SUFFIX, f"{path}.name", out)
    else:
        _length(longest, "Job", 0, f"{path}.name", out)
    out.each(
        f"{path}.name", longest, [words for words in names.dns_label(longest) if "no more than" not in words]
    )
    for depends in job.get("dependsOn") or ():
        if depends.get("name") not in known or depends.get("name") == job.get("name"):
            out.invalid(
                f"{path}.dependsOn",
                depends.get("name"),
                f"replicatedJob: {job.get('name')} cannot depend on replicatedJob: {depends.get('name')}: "
                "list that one before it",
            )
    job_template(template.get("template"), f"{path}.template.spec.template", "replicated job", out)
    if part(spec, "failurePolicy").get("restartStrategy") == jobset.IN_PLACE_RESTART:
        _in_place(str(job.get("name")), template, f"{path}.template.spec", out)


def _length(longest: str, what: str, suffix: int, path: str, out: Collector) -> None:
    over = len(longest) + suffix - _NAME_LIMIT
    if over > 0:
        out.invalid(
            path,
            longest,
            f"JobSet name is too long, {what} names generated for this JobSet will exceed {_NAME_LIMIT} characters: "
            f"shorten a name by {over}",
        )


def _in_place(name: str, template: Obj, path: str, out: Collector) -> None:
    if template.get("backoffLimit") != _INT32_MAX:
        out.invalid(
            f"{path}.backoffLimit",
            template.get("backoffLimit"),
            f"replicatedJob {name}: must be set to {_INT32_MAX} (MaxInt32) when in-place restart is enabled",
        )
    if template.get("podReplacementPolicy") != "Failed":
        out.invalid(
            f"{path}.podReplacementPolicy",
            template.get("podReplacementPolicy"),
            f"replicatedJob {name}: must be set to Failed when in-place restart is enabled",
        )
    count = template.get("completions")
    if count is None or count != template.get("parallelism"):
        out.invalid(
            f"{path}.completions",
            count,
            f"replicatedJob {name}: completions and parallelism must be set and equal to each other when in-place "
            "restart is enabled",
        )


def _targets(targets: Sequence[str], known: set[str], path: str, out: Collector) -> None:
    for index, target in enumerate(targets):
        if target not in known:
            out.invalid(
                f"{path}[{index}]",
                target,
                f"invalid replicatedJob name '{target}' does not appear in .spec.ReplicatedJobs: "
                f"use one of {', '.join(sorted(known))}",
            )


def _failure_policy(
    policy: Obj, replicated: Sequence[Obj], known: set[str], path: str, out: Collector
) -> None:
    rules = policy.get("rules") or ()
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        where = f"{path}.rules[{index}]"
        name = str(rule.get("name") or "")
        if len(name) > _RULE_NAME_LIMIT or not _RULE_NAME.fullmatch(name):
            out.invalid(
                f"{where}.name",
                name,
                "a failure policy rule name must start with an alphabetic character, optionally followed by a string "
                "of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' "
                f"(at most {_RULE_NAME_LIMIT} characters)",
            )
        if name in seen:
            out.duplicate(f"{where}.name", name)
        seen.add(name)
        _targets(rule.get("targetReplicatedJobs") or (), known, f"{where}.targetReplicatedJobs", out)
        for at, reason in enumerate(rule.get("onJobFailureReasons") or ()):
            out.choice(f"{where}.onJobFailureReasons[{at}]", reason, jobset.JOB_FAILURE_REASONS)
        for at, pattern in enumerate(rule.get("onJobFailureMessagePatterns") or ()):
            _pattern(pattern, f"{where}.onJobFailureMessagePatterns[{at}]", out)
        single = rule.get("action") in (jobset.RESTART_JOB, jobset.RESTART_JOB_UNCOUNTED)
        if single and any(jobset.replicas_of(job) > _RESTART_JOB_REPLICAS for job in replicated):
            out.invalid(
                f"{where}.action",
                rule.get("action"),
                f"no replicated job may have more than {_RESTART_JOB_REPLICAS} replicas with this action",
            )


def _pattern(pattern: str, path: str, out: Collector) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        out.invalid(path, pattern, f"it is not a regular expression: {error}")


def _coordinator(name: str, spec: Obj, replicated: Sequence[Obj], path: str, out: Collector) -> None:
    found = part(spec, "coordinator")
    wanted = found.get("replicatedJob")
    job = next((job for job in replicated if job.get("name") == wanted), None)
    if job is None:
        out.invalid(f"{path}.replicatedJob", wanted, f"coordinator replicatedJob {wanted} does not exist")
        return
    index, pod = found.get("jobIndex") or 0, found.get("podIndex") or 0
    if not 0 <= index < jobset.replicas_of(job):
        out.invalid(
            f"{path}.jobIndex", index, f"coordinator job index {index} is invalid for replicatedJob {wanted}"
        )
    template = jobset.job_spec(job)
    completions = template.get("completions")
    if template.get("completionMode") != "Indexed" or completions is None:
        out.invalid(
            f"{path}.replicatedJob",
            wanted,
            "job for coordinator pod must be indexed completion mode, and completions number must be set",
        )
    elif not 0 <= pod < completions:
        out.invalid(
            f"{path}.podIndex",
            pod,
            f"coordinator pod index {pod} is invalid for replicatedJob {wanted} job index {index}",
        )
    endpoint = jobset.coordinator_endpoint(name, spec)
    for words in names.label_value(endpoint):
        out.invalid(
            path, endpoint, f"spec will lead to invalid label value for {jobset.COORDINATOR}: {words}"
        )


def _claims(name: str, spec: Obj, replicated: Sequence[Obj], path: str, out: Collector) -> None:
    seen: set[str] = set()
    pods = [jobset.pod_spec(job) for job in replicated]
    for at, policy in enumerate(spec.get("volumeClaimPolicies") or ()):
        for index, template in enumerate(policy.get("templates") or ()):
            where = f"{path}.volumeClaimPolicies[{at}].templates[{index}].metadata"
            metadata = part(template, "metadata")
            claim = str(metadata.get("name") or "")
            if metadata.get("namespace"):
                out.forbidden(
                    f"{where}.namespace",
                    "namespace cannot be set for VolumeClaimPolicies templates: remove it",
                )
            out.checked(f"{where}.name", claim, names.dns_subdomain)
            if claim in seen:
                out.duplicate(f"{where}.name", claim)
            seen.add(claim)
            if len(f"{claim}-{name}") > _NAME_LIMIT:
                out.invalid(
                    f"{where}.name", claim, "VolumeClaimPolicies template name is too long: shorten it"
                )
            if any(volume.get("name") == claim for pod in pods for volume in pod.get("volumes") or ()):
                out.invalid(
                    f"{where}.name",
                    claim,
                    "a volume of a replicated job has the same name: remove that volume, the claim replaces it",
                )
            if not any(jobset.mounts(pod, claim) for pod in pods):
                out.invalid(
                    f"{where}.name",
                    claim,
                    "replicatedJob containers don't have a matching volumeMount: mount it in one of them",
                )


def _update(spec: Obj, before: Obj, status: Obj, out: Collector) -> None:
    for field in _IMMUTABLE:
        if spec.get(field) != before.get(field):
            out.forbidden(f"spec.{field}", "field is immutable: delete and create the JobSet")
    former = {job.get("name"): job for job in before.get("replicatedJobs") or ()}
    lenient = bool(spec.get("suspend") or before.get("suspend"))
    adjusted = [
        _as_before(job, former.get(job.get("name")), lenient, f"spec.replicatedJobs[{index}]", status, out)
        for index, job in enumerate(spec.get("replicatedJobs") or ())
    ]
    if adjusted != list(before.get("replicatedJobs") or ()):
        out.forbidden(
            "spec.replicatedJobs",
            "field is immutable. Labels, annotations, nodeSelector, tolerations and schedulingGates of pods may be "
            "changed while the JobSet is suspended, parallelism together with completions at any time",
        )


def _as_before(job: Obj, old: Obj | None, lenient: bool, path: str, status: Obj, out: Collector) -> Obj:
    """Return a replicated job with the former value of each field that may be changed."""
    if old is None:
        return job
    made: dict[str, Any] = patch_types.copy(dict(job))
    spec, former = made["template"]["spec"], jobset.job_spec(old)
    if spec.get("completionMode") == "Indexed":
        _scaling(spec, former, f"{path}.template.spec", status, out)
        for field in ("parallelism", "completions"):
            _take(spec, former, field)
    if lenient:
        template, past = spec["template"], part(former, "template")
        metadata, old_metadata = dict(template.get("metadata") or {}), part(past, "metadata")
        for field in ("labels", "annotations"):
            _take(metadata, old_metadata, field)
        _take(template, {"metadata": metadata} if "metadata" in past or metadata else {}, "metadata")
        for field in _WHILE_SUSPENDED:
            _take(template["spec"], part(past, "spec"), field)
    return made


def _take(target: dict[str, Any], source: Obj, field: str) -> None:
    if field in source:
        target[field] = source[field]
    else:
        target.pop(field, None)


def _scaling(spec: Obj, former: Obj, path: str, status: Obj, out: Collector) -> None:
    pair = tuple(spec.get(field) for field in ("parallelism", "completions"))
    if pair == tuple(former.get(field) for field in ("parallelism", "completions")):
        return
    if status.get("terminalState"):
        out.forbidden(
            path,
            "Cannot mutate parallelism or completions when JobSet is in a terminal state (Completed or Failed)",
        )
    elif None in pair or pair[0] != pair[1]:
        out.invalid(
            f"{path}.completions",
            pair[1],
            "completions must be equal to parallelism for Elastic Indexed Jobs",
        )
    else:
        out.at_least(f"{path}.parallelism", pair[0], 1)
