"""MPIJob is one kind with a history: which version an object was written in, and what each takes and fills in."""

from __future__ import annotations

from typing import Any

import pytest

from trainmaster.api import reading, schema
from trainmaster.engine.plan import plan_rejected
from trainmaster.frameworks.mpi import LAST_APPLIED, MPI, TELLTALES, written_in
from trainmaster.objects.meta import Author, JobMeta
from trainmaster.testing.scene import NOW, Scene, a_job

VERSIONS = ["v1", "v1alpha2", "v2beta1"]
each_version = pytest.mark.parametrize("version", VERSIONS)


def mpi(version: str = "v1", workers: int | None = 2, **spec: Any) -> Scene:
    scene = a_job("MPIJob", version=version, **spec).role("Launcher")
    return scene if workers is None else scene.role("Worker", workers)


def author(version: str, time: str = "2024-01-01T00:00:00Z", subresource: str = "") -> dict[str, str]:
    return {"apiVersion": f"kubeflow.org/{version}", "operation": "Update", "time": time, "subresource": subresource}


def bearing(*managed: dict[str, str], applied: str = "", declared: str = "", **more: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"managedFields": list(managed)} if managed else {}
    if applied:
        metadata["annotations"] = {LAST_APPLIED: f'{{"apiVersion": "kubeflow.org/{applied}", "kind": "MPIJob"}}'}
    return {"metadata": metadata, **({"apiVersion": f"kubeflow.org/{declared}"} if declared else {}), **more}


# Which version.


@pytest.mark.parametrize(
    ("raw", "version"),
    [
        pytest.param(
            bearing(author("v1"), applied="v1", declared="v1", status={"authoredVersion": "v1alpha2"}),
            "v1alpha2",
            id="what was found out before outweighs everything",
        ),
        pytest.param(
            bearing(author("v2beta1"), applied="v1", declared="v1"), "v2beta1", id="who wrote outweighs the rest"
        ),
        pytest.param(bearing(author("v1", "2024-02-02T00:00:00Z"), author("v2beta1")), "v2beta1", id="who wrote first"),
        pytest.param(
            bearing(author("v1", "2023-01-01T00:00:00Z", "status"), author("v1alpha2")),
            "v1alpha2",
            id="not who wrote the status",
        ),
        pytest.param(bearing(applied="v1alpha2", declared="v1"), "v1alpha2", id="what kubectl applied"),
        pytest.param(bearing(declared="v2beta1"), "v2beta1", id="what the object says of itself"),
        pytest.param(
            bearing(author("v7"), declared="v2beta1"), "v2beta1", id="versions we do not know are no evidence"
        ),
        pytest.param(bearing(), "v1", id="nothing at all"),
        *(
            pytest.param(bearing(spec={field: "x"}), version, id=field)
            for version, fields in TELLTALES.items()
            for field in fields
        ),
        pytest.param(bearing(spec={"template": {}}), "v1alpha1", id="one template for all"),
        pytest.param(bearing(spec={"template": {}, "mpiReplicaSpecs": {}}), "v1", id="a stray template"),
    ],
)
def test_an_object_is_read_in_the_version_that_its_author_wrote(raw: dict[str, Any], version: str) -> None:
    assert written_in(raw) == version


def test_typed_metadata_tells_the_author_as_well() -> None:
    meta = JobMeta(name="job", managed_fields=(Author(api_version="kubeflow.org/v2beta1", time="2024"),))

    assert written_in({"metadata": meta, "spec": {}}) == "v2beta1"


@pytest.mark.parametrize(
    "raw",
    [
        {"metadata": None, "spec": None, "status": None},
        {"metadata": [], "spec": [], "status": []},
        {"metadata": {"managedFields": "x"}, "spec": 1},
        {"metadata": {"managedFields": [{"apiVersion": 1, "time": []}]}},
        {"metadata": {"annotations": {LAST_APPLIED: "{"}}},
        {"metadata": {"annotations": {LAST_APPLIED: "[]"}}},
        {"apiVersion": ["kubeflow.org/v2beta1"], "status": {"authoredVersion": {}}},
    ],
    ids=["nulls", "lists", "authors as text", "an author of numbers", "cut short", "not an object", "odd types"],
)
def test_evidence_that_is_no_evidence_is_passed_over(raw: dict[str, Any]) -> None:
    assert written_in(raw) == "v1"


@each_version
def test_the_version_is_found_out_once_and_never_changes(version: str) -> None:
    scene = mpi(version).settled()

    later = {**scene.manifest, "apiVersion": "kubeflow.org/v1"}

    assert scene.job.status.authored_version == version
    assert written_in(later) == version


@each_version
def test_objects_belong_to_the_job_in_the_version_that_was_written(version: str) -> None:
    owners = [
        owner
        for action in mpi(version).plan().actions
        for owner in getattr(action, "body", {})["metadata"]["ownerReferences"]
    ]

    assert {owner["apiVersion"] for owner in owners} == {f"kubeflow.org/{version}"}


def test_the_oldest_version_is_refused_and_its_replacement_named() -> None:
    scene = a_job("MPIJob", version="v1alpha1", gpus=16, template={"spec": {"containers": []}})

    (problem,) = scene.problems

    assert problem.startswith("apiVersion: Forbidden: kubeflow.org/v1alpha1 MPIJob has been retired")
    assert "kubeflow.org/v2beta1" in problem
    assert "spec.mpiReplicaSpecs" in problem


def test_a_refused_job_fails_and_makes_nothing() -> None:
    scene = a_job("MPIJob", version="v1alpha1", template={"spec": {}})
    read = scene.reading
    bare = reading.bare(scene.framework, scene.framework.resource, scene.manifest)

    made = plan_rejected(read.framework, bare, read.problems, NOW, has_pods=False)

    assert (made.actions, made.status.is_true("Failed")) == ((), True)
    assert [event.reason for event in made.events] == ["MPIJobFailedValidation"]


# One CRD for all.


def test_one_crd_serves_every_version_and_warns_of_the_retired_one() -> None:
    crd = schema.crd(MPI(), MPI().resource)["spec"]

    assert [(v["name"], v["served"], v["storage"], v.get("deprecated", False)) for v in crd["versions"]] == [
        ("v1", True, True, False),
        ("v2beta1", True, False, False),
        ("v1alpha2", True, False, False),
        ("v1alpha1", True, False, True),
    ]
    assert crd["names"]["shortNames"] == ["mj", "mpij"]


def test_every_version_has_the_same_schema_and_the_columns_of_training_operator() -> None:
    versions = schema.crd(MPI(), MPI().resource)["spec"]["versions"]

    assert all(version["schema"] == versions[0]["schema"] for version in versions if version["name"] != "v1alpha1")
    assert {tuple(c["name"] for c in v["additionalPrinterColumns"]) for v in versions} == {("Age", "State")}
    assert all("status" in version["subresources"] for version in versions)


def test_the_schema_fills_in_nothing_that_would_give_away_another_version() -> None:
    spec: Any = schema.spec_schema(MPI())["properties"]

    telling = {field for fields in TELLTALES.values() for field in fields}

    assert telling <= set(spec)
    assert not any("default" in spec[field] or "enum" in spec[field] for field in telling)


# What is filled in.


@pytest.mark.parametrize(
    ("version", "restarts"),
    [("v1", ("Never", "Never")), ("v1alpha2", ("OnFailure", "Always")), ("v2beta1", ("OnFailure", "Never"))],
)
def test_restart_policies_default_by_version(version: str, restarts: tuple[str, str]) -> None:
    job = mpi(version).job

    assert (job.replicas["Launcher"].restart_policy, job.replicas["Worker"].restart_policy) == restarts


@pytest.mark.parametrize("written", ["Never", "OnFailure", "Always", "ExitCode"])
def test_launchers_of_v1alpha2_are_tried_again_whatever_is_written_as_by_a_job(written: str) -> None:
    scene = a_job("MPIJob", version="v1alpha2").role("Launcher", 1, written).role("Worker", 2, "Never")

    assert scene.job.replicas["Launcher"].restart_policy == "OnFailure"
    assert scene.job.replicas["Worker"].restart_policy == "Always"


@each_version
def test_there_is_one_launcher_and_workers_are_ended_with_it_by_default(version: str) -> None:
    scene = a_job("MPIJob", version=version).role("Launcher", None).role("Worker", 1)

    assert scene.job.count("Launcher") == 1
    assert scene.job.policy.clean_pod_policy == "Running"
    assert scene.having(compat_2021=True).job.policy.clean_pod_policy == "None"


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_a_worker_section_without_a_number_is_no_worker(version: str) -> None:
    assert a_job("MPIJob", version=version).role("Launcher").role("Worker", None).job.count("Worker") == 0


@pytest.mark.parametrize(
    ("flat", "nested", "effective"),
    [
        (None, None, "Running"),
        ("None", None, "None"),
        ("All", None, "All"),
        (None, "Running", "Running"),
        ("All", "Running", "Running"),
    ],
)
def test_the_clean_policy_of_v1_stands_in_two_places_and_the_inner_one_wins(
    flat: str | None, nested: str | None, effective: str
) -> None:
    scene = mpi("v1", cleanPodPolicy=flat).policy(cleanPodPolicy=nested)

    assert scene.job.policy.clean_pod_policy == effective


@pytest.mark.parametrize(
    ("spec", "limit"),
    [({}, 6), ({"backoffLimit": 2}, 2), ({"backoffLimit": 2, "runPolicy": {"backoffLimit": 9}}, 9)],
    ids=["none", "flat", "the inner one wins"],
)
def test_v1alpha2_gives_the_launcher_six_tries_unless_told_otherwise(spec: dict[str, Any], limit: int) -> None:
    assert mpi("v1alpha2", **spec).job.policy.backoff_limit == limit


@each_version
def test_an_empty_command_is_no_command(version: str) -> None:
    blank = [{"name": "main", "image": "i", "command": [""], "args": ["a"]}, {"name": "side", "image": "i"}]
    scene = a_job("MPIJob", version=version).role("Launcher", containers=blank).role("Worker", containers=blank)

    replicas = scene.job.replicas.values()

    assert [replica.template["spec"]["containers"][0] for replica in replicas] == 2 * [
        {"name": "main", "image": "i", "args": ["a"]}
    ]


# What is refused.


@pytest.mark.parametrize(
    ("scene", "path"),
    [
        pytest.param(a_job("MPIJob", mpiReplicaSpecs=None), "spec.mpiReplicaSpecs: Required", id="no replicas"),
        pytest.param(a_job("MPIJob").role("Worker"), "spec.mpiReplicaSpecs[Launcher]: Required", id="no launcher"),
        pytest.param(mpi().role("Launcher", 2), "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden", id="two"),
        pytest.param(mpi().role("Launcher", 0), "spec.mpiReplicaSpecs[Launcher].replicas: Forbidden", id="zero"),
        pytest.param(
            mpi().role("Launcher", containers=[]),
            "spec.mpiReplicaSpecs[Launcher].template.spec.containers: Required",
            id="no containers",
        ),
        pytest.param(
            mpi().role("Worker", containers=[{"name": "x"}]),
            "spec.mpiReplicaSpecs[Worker].template.spec.containers[0].image: Required",
            id="no image",
        ),
        pytest.param(
            mpi().role("Worker", containers=[{"image": "x"}]),
            "spec.mpiReplicaSpecs[Worker].template.spec.containers[0].name: Required",
            id="no container name",
        ),
        pytest.param(mpi().role("Chief"), "spec.mpiReplicaSpecs[Chief]: Unsupported", id="unknown role"),
        pytest.param(mpi(slotsPerWorker=-1), "spec.slotsPerWorker: Invalid", id="negative slots"),
        pytest.param(mpi().policy(backoffLimit=-1), "spec.runPolicy.backoffLimit: Invalid", id="negative limit"),
        pytest.param(mpi().policy(cleanPodPolicy="x"), "spec.runPolicy.cleanPodPolicy: Unsupported", id="clean policy"),
        pytest.param(mpi().policy(managedBy="me"), "spec.runPolicy.managedBy: Unsupported", id="manager"),
        pytest.param(mpi(mpiDistribution="Intel"), "spec.mpiDistribution: Unsupported", id="v2beta1's spelling"),
        pytest.param(mpi(mainContainer="x; reboot"), "spec.mainContainer: Unsupported", id="no such container"),
        pytest.param(
            mpi("v2beta1", mpiImplementation="IntelMPI"),
            "spec.mpiImplementation: Unsupported",
            id="v1alpha2's spelling",
        ),
        pytest.param(mpi("v2beta1", sshAuthMountPath=""), "spec.sshAuthMountPath: Required", id="empty path"),
        pytest.param(mpi("v2beta1", 0), "spec.mpiReplicaSpecs[Worker].replicas: Forbidden", id="v2beta1 no workers"),
        pytest.param(
            mpi("v2beta1", None).role("Worker", None),
            "spec.mpiReplicaSpecs[Worker].replicas: Forbidden",
            id="v2beta1 workers without a number",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(scene: Scene, path: str) -> None:
    (problem,) = scene.problems

    assert problem.startswith(path)


@pytest.mark.parametrize("policy", ["Always", "ExitCode", "Invalid"])
@pytest.mark.parametrize("role", ["Launcher", "Worker"])
def test_v2beta1_knows_only_never_and_on_failure(role: str, policy: str) -> None:
    (problem,) = mpi("v2beta1").role(role, 1, policy).problems

    assert problem.startswith(f'spec.mpiReplicaSpecs[{role}].restartPolicy: Unsupported value: "{policy}"')


def test_all_mistakes_are_told_at_once() -> None:
    scene = mpi("v2beta1").role("Launcher", 2, "Always").role("Worker", 0, "Invalid")
    scene = scene.policy(cleanPodPolicy="x", backoffLimit=-1, managedBy="me").meta(name="1-foo")

    paths = {problem.partition(":")[0] for problem in scene.problems}

    assert paths == {
        "metadata.name",
        "spec.runPolicy.backoffLimit",
        "spec.runPolicy.cleanPodPolicy",
        "spec.runPolicy.managedBy",
        "spec.mpiReplicaSpecs[Launcher].replicas",
        "spec.mpiReplicaSpecs[Launcher].restartPolicy",
        "spec.mpiReplicaSpecs[Worker].replicas",
        "spec.mpiReplicaSpecs[Worker].restartPolicy",
    }


def told(scene: Scene) -> list[str]:
    """Places and sorts of its mistakes, without the rest of the words."""
    return [": ".join(problem.split(": ")[:2]).removesuffix(" value") for problem in scene.problems]


CONTAINERS = "template.spec.containers: Required"


@pytest.mark.parametrize(
    ("scene", "mistakes"),
    [
        pytest.param(
            a_job("MPIJob", version="v2beta1"),
            ["spec.mpiReplicaSpecs: Required"],
            id="nothing at all",
        ),
        pytest.param(
            a_job("MPIJob", version="v2beta1", mpiReplicaSpecs={}),
            ["spec.mpiReplicaSpecs: Required", "spec.mpiReplicaSpecs[Launcher]: Required"],
            id="no roles",
        ),
        pytest.param(
            a_job("MPIJob", version="v2beta1", mpiReplicaSpecs={"Launcher": {}, "Worker": {}}),
            [
                f"spec.mpiReplicaSpecs[Launcher].{CONTAINERS}",
                "spec.mpiReplicaSpecs[Worker].replicas: Forbidden",
                f"spec.mpiReplicaSpecs[Worker].{CONTAINERS}",
            ],
            id="roles without anything, of which numbers and policies have defaults",
        ),
        pytest.param(
            mpi("v2beta1", 1000)
            .policy(
                cleanPodPolicy="x", ttlSecondsAfterFinished=-1, activeDeadlineSeconds=-1, backoffLimit=-1, managedBy="x"
            )
            .meta(name="a" * 54),
            [
                "spec.runPolicy.activeDeadlineSeconds: Invalid",
                "spec.runPolicy.backoffLimit: Invalid",
                "spec.runPolicy.managedBy: Unsupported",
                "spec.runPolicy.ttlSecondsAfterFinished: Invalid",
                "metadata.name: Invalid",
                "spec.runPolicy.cleanPodPolicy: Unsupported",
            ],
            id="every limit",
        ),
    ],
)
def test_the_mistakes_of_a_job_of_v2beta1(scene: Scene, mistakes: list[str]) -> None:
    assert sorted(told(scene)) == sorted(mistakes)


@each_version
@pytest.mark.parametrize(
    ("length", "workers", "is_valid"),
    [(54, 1, True), (55, 1, False), (54, 10, True), (54, 11, False), (52, 1000, True), (53, 1000, False)],
)
def test_the_name_must_leave_room_for_those_of_the_workers(
    version: str, length: int, workers: int, is_valid: bool
) -> None:
    scene = mpi(version, workers).meta(name="a" * length)

    assert [problem.partition(":")[0] for problem in scene.problems] == ([] if is_valid else ["metadata.name"])


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(mpi("v1", None), id="v1 without workers"),
        pytest.param(mpi("v1", 0), id="v1 with none"),
        pytest.param(mpi("v2beta1", None), id="v2beta1 without workers"),
        pytest.param(mpi("v2beta1", slotsPerWorker=0), id="no slots"),
        *(
            pytest.param(mpi("v2beta1", workers, mpiImplementation=name), id=f"{name} {workers}")
            for name in ("OpenMPI", "Intel", "MPICH")
            for workers in (2, None)
        ),
        *(pytest.param(mpi("v1alpha2", mpiDistribution=d), id=d) for d in ("OpenMPI", "IntelMPI", "MPICH")),
        pytest.param(mpi("v2beta1").policy(managedBy="kubeflow.org/mpi-operator"), id="managed by mpi-operator"),
        pytest.param(mpi("v1").policy(managedBy="kubeflow.org/training-operator"), id="managed by training-operator"),
        pytest.param(mpi("v1", mainContainer="main"), id="main container"),
    ],
)
def test_these_are_valid(scene: Scene) -> None:
    assert scene.problems == []


@each_version
def test_a_job_of_another_manager_is_not_touched(version: str) -> None:
    scene = mpi(version).policy(managedBy="kueue.x-k8s.io/multikueue", suspend=True)

    assert reading.is_managed_elsewhere(scene.framework, scene.manifest)


def test_an_unknown_creation_policy_makes_the_launcher_wait_and_says_so() -> None:
    scene = mpi("v2beta1", launcherCreationPolicy="Soon")

    made = scene.plan()

    assert [a.name for a in made.actions if a.resource.kind == "Job"] == []
    assert [event.reason for event in made.events if event.type == "Warning"] == ["UnknownLauncherCreationPolicy"]
