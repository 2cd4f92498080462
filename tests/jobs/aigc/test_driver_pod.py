"""The driver's pod among the pods of a job."""

from __future__ import annotations

from windlass.api.fields import aigc
from windlass.api.views import Pod, decode_pod, encode
from windlass.jobs.aigc.job import DRIVER_KEY, read_aigc_job
from windlass.jobs.aigc.pods import driver_among, pod_labels


def pod(name: str, labels: dict[str, str]) -> Pod:
    return decode_pod(encode({"metadata": {"name": name, "namespace": "ns", "uid": name, "labels": labels}}))


def test_driver_is_found_by_the_label_of_its_role() -> None:
    job = read_aigc_job({"metadata": {"name": "rows"}, "spec": {"runtimeRef": {"name": "noop"}}})
    driver, worker = (pod(role.key, pod_labels(job, role, 0)) for role in (job.driver, job.worker))
    assert driver.labels[aigc.ROLE] == DRIVER_KEY
    assert driver_among([worker, driver]) is driver
    assert driver_among([worker]) is None
