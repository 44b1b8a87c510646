"""MSJobs with a real MindSpore: what their scheduler makes of its end, and nodes that are killed in their midst.

python -m pytest tests/e2e/test_mindspore.py -k killed
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.e2e.examples import LIMIT
from tests.integration.bed import MARK, Bed, Json, bed, container_of, holding, processes, wait_for_end
from tools.environments import environment

from trainmaster.cli.embedded import EmbeddedOptions

EXAMPLE = Path(__file__).parents[2] / "examples" / "14-mindspore"
VERSION = "mindspore.gitee.com/v1"
FOREVER = "1000000000"
WORKERS = range(2)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    home = tmp_path_factory.mktemp("mindspore")
    files, quiet = {"/app": str(EXAMPLE)}, {"GLOG_v": "3"}
    image = {"match": "registry.example/mindspore", "python": str(environment("mindspore"))}
    config = home / "trainmaster.yaml"
    config.write_text(yaml.safe_dump({"images": [{**image, "files": files, "env": quiet}]}))
    with bed(EmbeddedOptions(str(home / "cluster"), config=str(config))) as running:
        running.patience = LIMIT
        yield running
    assert processes() == []


def example(name: str, clean: str, **env: str) -> Json:
    job: Json = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    job["metadata"] = {"name": name, "namespace": "default"}
    job["spec"]["runPolicy"] = {"cleanPodPolicy": clean}
    variables = {"MARK": MARK, "JOB": name, **env}
    for role in job["spec"]["msReplicaSpecs"].values():
        [container] = role["template"]["spec"]["containers"]
        container["env"] = [{"name": key, "value": value} for key, value in variables.items()]
    return job


def job_of(cluster: Bed, name: str, is_so: Callable[[Json], bool]) -> Json:
    found = cluster.until(cluster.resource(VERSION, "MSJob"), name, lambda job: job is not None and is_so(job))
    assert found is not None
    return found


def ended(cluster: Bed, name: str) -> Json:
    return job_of(cluster, name, lambda job: bool(holding(job) & {"Succeeded", "Failed"}))


def test_a_job_succeeds_with_its_workers_however_long_the_scheduler_takes_and_however_it_ends(cluster):
    cluster.submit(example("late", "None"))

    job = ended(cluster, "late")
    scheduler = cluster.pod("late-scheduler-0", lambda pod: "terminated" in container_of(pod).get("state", {}))

    text = "".join(cluster.log(f"late-worker-{index}") for index in WORKERS)
    losses = [float(loss) for loss in re.findall(r"step \d+ loss ([\d.]+)", text)]
    final = re.findall(r"rank (\d) final loss ([\d.]+) weights (.+)", text)
    assert holding(job) == {"Created", "Succeeded"}, text
    assert [rank for rank, _, _ in final] == ["0", "1"]
    assert max(float(loss) for _, loss, _ in final) < 0.001 * losses[0]
    assert len({weights for _, _, weights in final}) == 1
    assert text.count("of 2 has joined") == 2
    counts = {"Succeeded": "succeeded", "Failed": "failed"}[scheduler["status"]["phase"]]
    settled = job_of(cluster, "late", lambda job: bool(job["status"]["replicaStatuses"]["Scheduler"].get(counts)))
    assert holding(settled) == {"Created", "Succeeded"}
    assert processes("late") == []


@pytest.mark.parametrize("role", ["Scheduler", "Worker"])
def test_a_killed_node_fails_its_job_and_takes_all_processes_with_it(cluster, role):
    name = f"killed-{role.lower()}"
    cluster.submit(example(name, "Running", STEPS=FOREVER))
    cluster.says(f"{name}-worker-0", "step 0 loss")
    running = processes(name)
    [victim] = [ran for ran in running if ran.env["HOSTNAME"] == f"{name}-{role.lower()}-0"]

    os.kill(victim.pid, signal.SIGKILL)

    [failed] = [c for c in ended(cluster, name)["status"]["conditions"] if c["type"] == "Failed"]
    assert failed["message"] == f"MSJob default/{name} has failed because 1 {role} replica(s) failed."
    wait_for_end([ran.pid for ran in running])
    assert processes(name) == []
