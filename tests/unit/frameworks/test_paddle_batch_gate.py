"""The ConfigMap through which a job's processes learn of one another: when it is there, and what it says."""

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle, addressed

from trainmaster.engine.actions import Create, Patch
from trainmaster.frameworks import paddle_batch_contract as contract
from trainmaster.objects.meta import Meta, OwnerReference
from trainmaster.objects.resource import CONFIG_MAPS
from trainmaster.testing.scene import UID, Scene, body, created, deleted


def data_of(scene: Scene) -> dict[str, str]:
    return dict(body(scene.plan(), "job", CONFIG_MAPS)["data"])


def written(scene: Scene) -> list[dict[str, str]]:
    """What this pass writes into the ConfigMap."""
    actions = [a for a in scene.plan().actions if isinstance(a, Create | Patch) and a.resource == CONFIG_MAPS]
    return [dict(action.body["data"]) for action in actions]


def opened(scene: Scene, phase: str = "Running") -> Scene:
    """The gate has been opened, and the pods are in that phase."""
    return addressed(addressed(scene).after(), phase)


def port_of(data: dict[str, str]) -> int:
    return int(data["PADDLE_PORT"])


def test_it_stays_closed_until_the_last_pod_has_an_address():
    scene = addressed(a_paddle(ps=2, worker=2)).pod("worker", 1, "Pending")

    assert created(scene.plan(), CONFIG_MAPS) == []
    assert created(addressed(scene).plan(), CONFIG_MAPS) == ["job"]


def test_it_stays_closed_while_a_pod_is_missing():
    scene = addressed(a_paddle(ps=2, worker=2)).gone("ps", 1)

    assert created(scene.plan(), CONFIG_MAPS) == []


def test_it_is_named_after_the_job_and_goes_with_it():
    scene = addressed(a_paddle(worker=1))

    metadata = body(scene.plan(), "job", CONFIG_MAPS)["metadata"]

    assert metadata["labels"]["paddle-res-name"] == "job"
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [UID]


def test_by_address_it_holds_the_addresses_and_one_port_for_the_job():
    data = data_of(addressed(a_paddle(ps=2, worker=2, heter=1)))

    port = port_of(data)
    assert 36000 <= port <= 55999
    assert data == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": str(port),
        "PADDLE_PSERVERS_IP_PORT_LIST": f"10.0.0.1:{port},10.0.0.2:{port}",
        "PADDLE_TRAINER_ENDPOINTS": f"10.0.0.3:{port},10.0.0.4:{port}",
        "PADDLE_TRAINERS": "10.0.0.3,10.0.0.4",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_HETER_ENDPOINTS": f"10.0.0.5:{port}",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST": f"10.0.0.5:{port}",
    }


def test_replicas_that_share_their_machines_address_are_told_apart_by_name():
    scene = a_paddle(ps=2, worker=1).all("Pending", ip="127.0.0.1").served()

    data = data_of(scene)

    port = data["PADDLE_PORT"]
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == f"job-ps-0:{port},job-ps-1:{port}"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == f"job-worker-0:{port}"
    assert data["PADDLE_TRAINERS"] == "127.0.0.1"


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"intranet": "Service"}, id="intranet"),
        pytest.param({"withGloo": 2}, id="gloo"),
    ],
)
def test_an_edit_of_how_they_reach_each_other_is_not_for_processes_that_live_by_it(edit):
    scene = opened(a_paddle(ps=1, worker=2, withGloo=1))

    edited = scene.spec(**edit)

    assert written(edited) == []
    assert deleted(edited.plan(), CONFIG_MAPS) == []


def test_an_edit_of_how_they_reach_each_other_counts_while_nobody_has_read_it():
    scene = opened(a_paddle(worker=2), "Pending")

    [data] = written(scene.spec(intranet="Service"))

    assert data["PADDLE_TRAINERS"] == "job-worker-0,job-worker-1"


def test_a_pod_that_comes_back_with_another_address_is_written_down_though_the_job_was_not_edited():
    scene = opened(a_paddle(worker=2)).pod("worker", 1, "Running", ip="10.0.0.9")

    [data] = written(scene)

    assert data["PADDLE_TRAINERS"] == "10.0.0.1,10.0.0.9"


def test_by_service_it_holds_names_and_the_port_of_the_services():
    data = data_of(addressed(a_paddle(ps=2, worker=2, heter=1, intranet="Service")))

    assert data == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": "36000",
        "PADDLE_PSERVERS_IP_PORT_LIST": "job-ps-0:36000,job-ps-1:36000",
        "PADDLE_TRAINER_ENDPOINTS": "job-worker-0:36000,job-worker-1:36000",
        "PADDLE_TRAINERS": "job-worker-0,job-worker-1",
        "PADDLE_TRAINERS_NUM": "2",
        "PADDLE_HETER_ENDPOINTS": "job-heter-0:36000",
        "PADDLE_HETER_TRAINER_IP_PORT_LIST": "job-heter-0:36000",
    }


def test_by_host_it_holds_addresses_and_the_port_that_was_dealt_out():
    scene = a_paddle(ps=1, worker=1, intranet="Host").meta(annotations={"host-port": "35020"})

    data = data_of(addressed(scene))

    assert data["PADDLE_PORT"] == "35020"
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == "10.0.0.1:35020"
    assert data["PADDLE_TRAINER_ENDPOINTS"] == "10.0.0.2:35020"


@pytest.mark.parametrize("spelling", ["", "PodIP", "podip", "nonsense"])
def test_an_unknown_intranet_is_by_address(spelling):
    data = data_of(addressed(a_paddle(worker=1, intranet=spelling)))

    assert data["PADDLE_TRAINERS"] == "10.0.0.1"


def test_workers_alone_are_told_of_one_another_and_of_nobody_else():
    data = data_of(addressed(a_paddle(worker=2)))

    port = data["PADDLE_PORT"]
    assert data == {
        "TRAINER_PORTS_NUM": "20",
        "PADDLE_PORT": port,
        "PADDLE_TRAINER_ENDPOINTS": f"10.0.0.1:{port},10.0.0.2:{port}",
        "PADDLE_TRAINERS": "10.0.0.1,10.0.0.2",
        "PADDLE_TRAINERS_NUM": "2",
    }


def test_roles_that_the_job_lacks_are_not_spoken_of():
    data = data_of(addressed(a_paddle(worker=1)))

    assert not [key for key in data if "PSERVER" in key or "HETER" in key]


@pytest.mark.parametrize("level", [1, 2, 7])
@pytest.mark.parametrize(
    ("intranet", "host", "port"),
    [
        pytest.param("PodIP", "10.0.0.1", None, id="PodIP"),
        pytest.param("Service", "job-ps-0", 36000, id="Service"),
        pytest.param("Host", "10.0.0.1", 35020, id="Host"),
    ],
)
def test_gloo_meets_at_server_0_eighteen_ports_on(intranet, host, port, level):
    scene = a_paddle(ps=2, worker=2, intranet=intranet, withGloo=level).meta(annotations={"host-port": "35020"})

    data = data_of(addressed(scene))

    assert port_of(data) == (port or port_of(data))
    assert data["PADDLE_WITH_GLOO"] == str(level)
    assert data["PADDLE_GLOO_RENDEZVOUS"] == "3"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == f"{host}:{port_of(data) + 18}"


@pytest.mark.parametrize("intranet", ["PodIP", "Service", "Host"])
@pytest.mark.parametrize(
    ("servers", "level"),
    [pytest.param(2, None, id="unset"), pytest.param(2, 0, id="off"), pytest.param(None, 1, id="without servers")],
)
def test_gloo_is_off_unless_asked_for_and_only_with_servers(intranet, servers, level):
    data = data_of(addressed(a_paddle(ps=servers, worker=2, intranet=intranet, withGloo=level)))

    assert not [key for key in data if "GLOO" in key]


def test_addresses_with_colons_stand_in_brackets_before_a_port():
    scene = a_paddle(ps=1, worker=1, withGloo=1).pod("ps", 0, "Pending", ip="fd00::1")

    data = data_of(scene.pod("worker", 0, "Pending", ip="fd00::2").served())

    port = port_of(data)
    assert data["PADDLE_PSERVERS_IP_PORT_LIST"] == f"[fd00::1]:{port}"
    assert data["PADDLE_TRAINERS"] == "fd00::2"
    assert data["PADDLE_GLOO_HTTP_ENDPOINT"] == f"[fd00::1]:{port + 18}"


def test_a_job_has_the_same_port_whenever_it_is_looked_at_and_others_have_others():
    jobs = [a_paddle(worker=1).meta(uid=uid).job for uid in ("one", "one", "two")]

    ports = [contract.first_port(job) for job in jobs]

    assert ports[0] == ports[1]
    assert ports[0] != ports[2]


def test_an_open_gate_is_not_touched_again():
    scene = opened(a_paddle(ps=1, worker=2))

    assert written(scene) == []
    assert deleted(scene.plan(), CONFIG_MAPS) == []


def test_it_closes_for_a_pod_that_is_made_again_and_opens_with_the_new_address():
    scene = opened(a_paddle(ps=1, worker=2)).gone("worker", 1)

    closing = scene.plan()
    waiting = scene.after(closing)
    opening = waiting.pod("worker", 1, "Pending", ip="10.0.0.9")

    assert (deleted(closing, CONFIG_MAPS), created(closing)) == (["job"], ["job-worker-1"])
    assert written(waiting) == []
    assert [data["PADDLE_TRAINERS"] for data in written(opening)] == ["10.0.0.2,10.0.0.9"]


def test_it_is_mended_when_a_pod_comes_back_elsewhere_between_two_looks():
    scene = opened(a_paddle(worker=2)).pod("worker", 1, "Pending", ip="10.0.0.9")

    assert [data["PADDLE_TRAINERS"] for data in written(scene)] == ["10.0.0.1,10.0.0.9"]


def test_by_service_it_stays_open_for_a_pod_that_is_made_again():
    scene = opened(a_paddle(ps=1, worker=2, intranet="Service")).gone("worker", 1)

    made = scene.plan()

    assert deleted(made, CONFIG_MAPS) == []
    assert created(made) == ["job-worker-1"]


def test_a_worker_that_is_done_and_gone_keeps_nobody_waiting():
    done = opened(a_paddle(ps=1, worker=2)).pod("worker", 0, "Succeeded", ip="10.0.0.2").after().gone("worker", 0)

    scene = done.gone("ps", 0).after().pod("ps", 0, "Pending", ip="10.0.0.9")

    assert [data["PADDLE_TRAINERS"] for data in written(scene)] == ["job-worker-0,10.0.0.3"]
    assert "job-worker-0" not in created(done.plan())


@pytest.mark.parametrize("replicas", [1, 3])
def test_it_is_made_anew_for_another_number_of_replicas_while_nobody_has_passed_it(replicas):
    scene = addressed(a_paddle(worker=2)).after().scaled("worker", replicas)

    writes = [*written(scene), *written(addressed(scene.after()))]

    assert [data["PADDLE_TRAINERS_NUM"] for data in writes] == [str(replicas)]


@pytest.mark.parametrize("replicas", [1, 3])
def test_it_is_left_for_another_number_of_replicas_once_somebody_has_passed_it(replicas):
    scene = opened(a_paddle(worker=2)).scaled("worker", replicas)

    settled = addressed(scene.after(), "Running")

    assert deleted(scene.plan(), CONFIG_MAPS) == []
    assert written(settled) == []


@pytest.mark.parametrize("replicas", [1, 3])
def test_after_another_number_of_replicas_a_pod_that_is_made_again_still_finds_its_own_address(replicas):
    scene = addressed(opened(a_paddle(worker=2)).scaled("worker", replicas).after(), "Running").gone("worker", 0)

    closing = scene.plan()
    opening = scene.after(closing).pod("worker", 0, "Pending", ip="10.0.0.9")

    assert (deleted(closing, CONFIG_MAPS), created(closing)) == (["job"], ["job-worker-0"])
    assert [data["PADDLE_TRAINERS"].split(",")[0] for data in written(opening)] == ["10.0.0.9"]


@pytest.mark.parametrize("sizes", ["worker", "worker=", "worker=x", "worker=" + "9" * 5000, "=,=,"])
def test_nonsense_in_its_annotation_is_nobodys_size(sizes):
    owner = (OwnerReference(uid=UID, controller=True),)
    held = Meta(name="job", namespace="default", uid="m", owner_references=owner, annotations={contract.SIZES: sizes})

    running = addressed(a_paddle(worker=2), "Running").other("ConfigMap", held, {})

    assert written(running) == []


def test_one_that_another_operator_made_is_left_to_the_processes_that_live_by_it():
    owner = (OwnerReference(uid=UID, controller=True),)
    held = Meta(name="job", namespace="default", uid="theirs", owner_references=owner)

    running = addressed(a_paddle(worker=2), "Running").other("ConfigMap", held, {})

    assert written(running) == []
    assert deleted(running.plan(), CONFIG_MAPS) == []
    assert len(written(addressed(running, "Pending"))) == 1


def test_an_elastic_jobs_is_kept_current_and_never_closed():
    scene = opened(a_paddle(worker=2, elastic=1)).scaled("worker", 3)

    growing = scene.plan()

    assert deleted(growing, CONFIG_MAPS) == []
    assert [data["PADDLE_TRAINERS_NUM"] for data in written(addressed(scene.after(growing), "Running"))] == ["3"]


@pytest.mark.parametrize("policy", ["Always", "Never"])
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_it_outlives_the_pods_of_a_job_that_has_ended(policy, phase):
    scene = addressed(opened(a_paddle(worker=2, cleanPodPolicy=policy)), phase)

    ended = scene.settled()

    assert ("ConfigMap", "job") in ended.others
    assert bool(ended.pods) == (policy == "Never")


def test_a_suspended_job_has_none():
    scene = opened(a_paddle(worker=2)).policy(suspend=True)

    assert ("ConfigMap", "job") not in scene.settled().others
