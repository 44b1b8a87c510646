"""PaddleJob of batch.paddlepaddle.org: what the kind is, and what its pods and Services are given."""

from typing import Any

import pytest
from tests.unit.frameworks.paddle_jobs import CONTAINERS, a_paddle, env_of, the_pod

from trainmaster import frameworks
from trainmaster.api import schema
from trainmaster.frameworks import paddle_batch_contract as contract
from trainmaster.frameworks.paddle_batch import PaddleBatch
from trainmaster.objects.resource import SERVICES
from trainmaster.testing.scene import body, created


def test_the_resource_is_paddle_operators_own():
    framework = PaddleBatch()

    names = schema.crd(framework, framework.resource)["spec"]["names"]

    assert framework.resource.api_version == "batch.paddlepaddle.org/v1"
    assert names == {
        "kind": "PaddleJob",
        "listKind": "PaddleJobList",
        "plural": "paddlejobs",
        "singular": "paddlejob",
        "shortNames": ["pdj"],
    }


def test_kubectl_shows_status_mode_ps_worker_and_age():
    framework = PaddleBatch()

    [version] = schema.crd(framework, framework.resource)["spec"]["versions"]

    assert version["subresources"] == {"status": {}}
    assert [(column["name"], column["jsonPath"]) for column in version["additionalPrinterColumns"]] == [
        ("Status", ".status.phase"),
        ("Mode", ".status.mode"),
        ("PS", ".status.ps.ready"),
        ("Worker", ".status.worker.ready"),
        ("Age", ".metadata.creationTimestamp"),
    ]


def test_the_two_kinds_of_that_name_are_told_apart_by_their_group():
    found = [frameworks.serving(version, "PaddleJob") for version in ("kubeflow.org/v1", "batch.paddlepaddle.org/v1")]

    assert [served[0].name for served in found if served] == ["paddle", "paddle-batch"]


@pytest.mark.parametrize(
    ("scheme", "enabled"),
    [
        pytest.param("paddlejob", ["paddle", "paddle-batch"], id="both"),
        pytest.param("PaddleJob.batch.paddlepaddle.org", ["paddle-batch"], id="this one"),
        pytest.param("paddlejob.kubeflow.org", ["paddle"], id="the other"),
    ],
)
def test_either_kind_can_be_enabled_alone(scheme, enabled):
    assert [framework.name for framework in frameworks.enabled((scheme,))] == enabled


def test_pods_are_made_in_the_order_ps_worker_heter():
    scene = a_paddle(heter=1, worker=2, ps=2)

    made = scene.plan()

    assert created(made) == ["job-ps-0", "job-ps-1", "job-worker-0", "job-worker-1", "job-heter-0"]
    assert created(made, SERVICES) == created(made)


@pytest.mark.parametrize(
    ("role", "party"),
    [
        pytest.param("ps", "PSERVER", id="ps"),
        pytest.param("worker", "TRAINER", id="worker"),
        pytest.param("heter", "HETER", id="heter"),
    ],
)
def test_a_replica_learns_its_address_its_number_and_its_role_after_what_the_user_set(role, party):
    scene = a_paddle(ps=2, worker=2, heter=2).role(role, 2, containers=CONTAINERS)

    pod = the_pod(scene, f"job-{role}-1")

    assert list(env_of(pod).items()) == [
        ("MINE", "1"),
        ("POD_IP", {"fieldRef": {"fieldPath": "status.podIP"}}),
        ("PADDLE_TRAINER_ID", "1"),
        ("TRAINING_ROLE", party),
        ("PADDLE_TRAINING_ROLE", party),
    ]
    assert "env" not in pod["spec"]["containers"][1]


def test_only_the_first_container_waits_at_the_gate():
    sources = [{"secretRef": {"name": "mine"}}]
    containers = [{**CONTAINERS[0], "envFrom": sources}, CONTAINERS[1]]

    first, second = the_pod(a_paddle().role("worker", 1, containers=containers))["spec"]["containers"]

    assert first["envFrom"] == [*sources, {"configMapRef": {"name": "job"}}]
    assert "envFrom" not in second


def test_a_pod_bears_the_marks_of_paddle_operator_beside_those_of_its_template():
    metadata = {"labels": {"mine": "1"}, "annotations": {"mine": "2"}, "name": "ignored", "namespace": "ignored"}

    pod = the_pod(a_paddle().role("worker", 1, metadata=metadata))

    assert pod["metadata"]["labels"].items() >= {
        "mine": "1",
        "paddle-res-name": "job-worker-0",
        "paddle-res-type": "worker",
    }.items()  # fmt: skip
    assert pod["metadata"]["annotations"] == {"mine": "2", "paddle-resource": "worker"}
    assert (pod["metadata"]["name"], pod["metadata"]["namespace"]) == ("job-worker-0", "default")
    [owner] = pod["metadata"]["ownerReferences"]
    assert (owner["controller"], owner["blockOwnerDeletion"]) == (True, True)
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("job-worker-0", "job-worker-0")


@pytest.mark.parametrize(
    ("scene", "leader"),
    [
        pytest.param(a_paddle(ps=2, worker=2), "job-worker-0", id="with workers"),
        pytest.param(a_paddle(ps=2), "job-ps-0", id="without"),
        pytest.param(a_paddle(ps=1, worker=0), "job-ps-0", id="none now"),
    ],
)
def test_the_first_worker_is_the_one_whose_log_to_read(scene, leader):
    made = scene.plan()

    labels = {name: body(made, name)["metadata"]["labels"] for name in created(made)}

    assert [name for name in labels if "training.kubeflow.org/job-role" in labels[name]] == [leader]


def test_everything_else_of_the_template_passes_through():
    template: dict[str, Any] = {
        "nodeSelector": {"accelerator": "p100"},
        "tolerations": [{"key": "gpu"}],
        "schedulerName": "coscheduling",
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nfs"}}],
    }

    pod = the_pod(a_paddle().role("worker", 1, **template))

    assert pod["spec"].items() >= template.items()


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host", ""])
def test_every_pod_has_a_headless_service_of_twenty_ports(intranet):
    scene = a_paddle(worker=1, intranet=intranet)

    service = body(scene.plan(), "job-worker-0", SERVICES)

    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"] == {"paddle-res-name": "job-worker-0"}
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert [(port["name"], port["port"]) for port in service["spec"]["ports"]] == [
        (f"p-{number}", 36000 + number) for number in range(20)
    ]


def test_under_service_a_pod_is_known_by_its_name_and_declares_its_port():
    containers = [{**CONTAINERS[0], "ports": [{"containerPort": 80}]}]

    pod = the_pod(a_paddle(intranet="Service").role("worker", 1, containers=containers))

    assert env_of(pod)["POD_IP"] == "job-worker-0"
    assert pod["spec"]["containers"][0]["ports"] == [{"containerPort": 80}, {"containerPort": 36000}]
    assert "hostNetwork" not in pod["spec"]


def test_by_address_a_pod_declares_the_port_of_its_job():
    scene = a_paddle(worker=1)

    [container] = the_pod(scene)["spec"]["containers"]

    assert container["ports"] == [{"containerPort": contract.first_port(scene.job)}]


def test_a_pod_that_is_on_the_nodes_network_anyway_takes_no_port_of_the_node():
    scene = a_paddle().role("worker", 1, hostNetwork=True)

    [container] = the_pod(scene)["spec"]["containers"]

    assert "ports" not in container


def test_under_host_a_pod_is_on_the_nodes_network_and_still_resolves_services():
    scene = a_paddle(worker=1, intranet="Host")

    spec = the_pod(scene)["spec"]

    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "ports" not in spec["containers"][0]


def test_a_dns_policy_of_the_users_is_kept():
    spec = the_pod(a_paddle(intranet="Host").role("worker", 1, dnsPolicy="Default"))["spec"]

    assert spec["dnsPolicy"] == "Default"


@pytest.mark.parametrize(
    ("spec", "role", "template", "expected"),
    [
        pytest.param({}, "worker", None, "Never", id="worker"),
        pytest.param({}, "ps", None, "Never", id="ps"),
        pytest.param({"intranet": "Service"}, "worker", None, "OnFailure", id="worker by name"),
        pytest.param({"intranet": "Service"}, "ps", None, "Never", id="ps by name"),
        pytest.param({"intranet": "Service"}, "worker", "Never", "Never", id="the user's word, by name"),
        pytest.param({}, "worker", "Always", "Always", id="the user's word"),
        pytest.param({"elastic": 0}, "worker", "Never", "OnFailure", id="elastic"),
        pytest.param({"elastic": 1}, "ps", None, "OnFailure", id="elastic ps"),
    ],
)
def test_the_restart_policy_stands_in_the_template(spec, role, template, expected):
    more = {"restartPolicy": template} if template else {}
    scene = a_paddle(worker=1, ps=1, **spec).role(role, 1, **more)

    pod = the_pod(scene, f"job-{role}-0")

    assert pod["spec"]["restartPolicy"] == expected
    assert not [advice for advice in scene.reading.advice if advice.reason == "SetPodTemplateRestartPolicy"]


def test_an_unknown_restart_policy_is_refused_where_it_stands():
    scene = a_paddle().role("worker", 1, restartPolicy="Sometimes")

    assert scene.problems == [
        'spec.worker.template.spec.restartPolicy: Unsupported value: "Sometimes": supported values: '
        '"Always", "OnFailure", "Never", "ExitCode"'
    ]


def test_a_volume_of_the_sample_sets_name_is_refused_with_its_path():
    scene = a_paddle(sampleSetRef={"name": "imagenet", "mountPath": "/data"})

    problems = scene.role("worker", 1, volumes=[{"name": "x"}, {"name": "imagenet"}]).problems

    assert problems == [
        'spec.worker.template.spec.volumes[1].name: Invalid value: "imagenet": '
        "is the name of the volume of spec.sampleSetRef; take one of them out"
    ]


def test_a_sample_set_is_mounted_into_the_first_container_of_every_pod():
    samples = {"name": "imagenet", "mountPath": "/data"}
    scene = a_paddle(ps=1, worker=1, sampleSetRef=samples)

    for name in ("job-ps-0", "job-worker-0"):
        spec = the_pod(scene, name)["spec"]
        assert spec["volumes"] == [{"name": "imagenet", "persistentVolumeClaim": {"claimName": "imagenet"}}]
        assert spec["containers"][0]["volumeMounts"] == [{"name": "imagenet", "mountPath": "/data"}]


ELASTIC = {"PADDLE_ELASTIC_JOB_ID": "default-job", "PADDLE_ELASTIC_NP": "3", "PADDLE_ELASTIC_TIMEOUT": "60"}


@pytest.mark.parametrize(
    ("servers", "more"),
    [
        pytest.param((), {}, id="without etcd"),
        pytest.param(("a:2379", "b:2379"), {"PADDLE_ELASTIC_SERVER": "a:2379,b:2379"}, id="with etcd"),
    ],
)
@pytest.mark.parametrize("level", [0, 1])
def test_elastic_workers_are_told_how_many_they_are_in_place_of_the_gate(level, servers, more):
    pod = the_pod(a_paddle(worker=3, elastic=level).having(etcd_servers=servers))

    assert list(env_of(pod).items())[4:] == list({**ELASTIC, **more}.items())
    assert "envFrom" not in pod["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("scene", "problem"),
    [
        pytest.param(
            a_paddle(ps=1, elastic=1),
            "spec.worker: Required value: must be present, because spec.elastic lets the number of workers change",
            id="elastic without workers",
        ),
        pytest.param(
            a_paddle(worker=1, sampleSetRef={"name": "a", "mountPath": "/a:b"}),
            "spec.sampleSetRef.mountPath: Invalid value: \"/a:b\": must not contain ':'",
            id="colon in a mount path",
        ),
        pytest.param(
            a_paddle(worker=1, sampleSetRef={"name": "a"}),
            "spec.sampleSetRef.mountPath: Required value: is missing",
            id="no mount path",
        ),
        pytest.param(
            a_paddle(), "spec: Required value: must have at least one of ps, worker, heter", id="no role at all"
        ),
        pytest.param(
            a_paddle(worker=-1),
            "spec.worker.replicas: Invalid value: -1: must be at least 0",
            id="fewer than none",
        ),
    ],
)
def test_mistakes_are_named_with_their_path(scene, problem):
    assert problem in scene.problems


def test_a_misspelt_policy_is_accepted_ignored_and_named():
    scene = a_paddle(worker=1, cleanPolicy="OnCompletion")

    [advice] = scene.reading.advice

    assert scene.job.policy.clean_pod_policy == ""
    assert (advice.reason, advice.message) == (
        "UnknownField",
        "spec.cleanPolicy is not a known field and is ignored; did you mean cleanPodPolicy?",
    )


@pytest.mark.parametrize(
    ("policy", "hint"),
    [
        pytest.param("Nerver", "did you mean Never?", id="typo"),
        pytest.param("OnFailed", "did you mean OnFailure?", id="near miss"),
        pytest.param("Bogus", "write one of Always, OnCompletion, OnFailure, Never", id="anything"),
    ],
)
def test_an_unknown_policy_is_accepted_and_named(policy, hint):
    [advice] = a_paddle(worker=1, cleanPodPolicy=policy).reading.advice

    assert advice.reason == "UnknownPolicy"
    assert advice.message == f"spec.cleanPodPolicy {policy} is not known, so all pods are kept; {hint}"


@pytest.mark.parametrize(
    ("intranet", "hint"),
    [
        pytest.param("service", "did you mean Service?", id="lower case"),
        pytest.param("HostNetwork", "write one of PodIP, Service, Host", id="anything"),
    ],
)
def test_an_unknown_intranet_is_accepted_and_named(intranet, hint):
    [advice] = a_paddle(worker=1, intranet=intranet).reading.advice

    assert advice.reason == "UnknownIntranet"
    assert advice.message == f"spec.intranet {intranet} is not known, so PodIP is taken; {hint}"


@pytest.mark.parametrize("intranet", ["", "PodIP", "Service", "Host"])
def test_the_known_intranets_need_no_advice(intranet):
    assert a_paddle(worker=1, intranet=intranet).reading.advice == ()


@pytest.mark.parametrize("role", ["ps", "PS", "heter"])
def test_a_role_that_is_null_is_a_role_that_the_job_lacks(role):
    scene = a_paddle(worker=1).spec(**{role: None})

    assert scene.problems == []
    assert list(scene.job.replicas) == ["worker"]


def test_a_claim_of_another_namespace_is_told_to_be_out_of_reach():
    samples = {"name": "imagenet", "mountPath": "/data", "namespace": "data"}

    [advice] = a_paddle(worker=1, sampleSetRef=samples).reading.advice

    assert (advice.reason, advice.message) == (
        "ForeignNamespace",
        "spec.sampleSetRef.namespace is data, but pods can mount claims of default alone; make the claim there",
    )


@pytest.mark.parametrize("policy", ["Always", "Never", "OnFailure", "OnCompletion"])
def test_the_known_policies_need_no_advice(policy):
    assert a_paddle(worker=1, cleanPodPolicy=policy).reading.advice == ()


def test_all_fields_of_the_old_definition_are_known():
    fields: dict[str, Any] = {"intranet": "PodIP", "withGloo": 1, "elastic": 1, "schedulingPolicy": {"queue": "q"}}
    scene = a_paddle(worker=1, **fields)
    worker = {**scene.manifest["spec"]["worker"], "requests": 1, "limits": 2}

    assert scene.spec(worker=worker).reading.advice == ()
