"""The init container in which pods of paddle-operator jobs wait for one another's names."""

import subprocess

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle, the_pod

from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.scene import Scene


def test_the_coordinator_waits_for_every_name_of_the_job_after_the_users_own_init_containers():
    mine = {"name": "mine", "image": "x"}
    scene = a_paddle(ps=1).role("worker", 2, initContainers=[mine])

    first, coordinator = the_pod(scene)["spec"]["initContainers"]

    assert first == mine
    assert (coordinator["name"], coordinator["image"]) == ("coord-paddle", "docker.io/library/alpine:3.10")
    assert coordinator["imagePullPolicy"] == "IfNotPresent"
    assert coordinator["command"][:2] == ["sh", "-c"]
    assert coordinator["command"][3:] == ["job", "ps=0-0", "worker=0-1"]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(a_paddle(worker=1).having(coordinator_image=""), id="no image"),
        pytest.param(a_paddle(worker=1, elastic=1), id="elastic"),
    ],
)
def test_there_is_no_coordinator_without_an_image_nor_for_those_who_go_on_without_each_other(scene):
    assert "initContainers" not in the_pod(scene)["spec"]


@pytest.mark.parametrize(
    ("done", "awaited"),
    [
        pytest.param((), ["worker=0-4"], id="nobody"),
        pytest.param((0,), ["worker=1-4"], id="first"),
        pytest.param((4,), ["worker=0-3"], id="last"),
        pytest.param((1, 3), ["worker=0-0", "worker=2-2", "worker=4-4"], id="every other"),
        pytest.param((1, 2, 3), ["worker=0-0", "worker=4-4"], id="several in a row"),
    ],
)
def test_a_pod_that_is_made_again_does_not_wait_for_those_that_are_done(done, awaited):
    scene = a_paddle(ps=1, worker=5).all("Running").gone("ps", 0)
    for index in done:
        scene = scene.pod("worker", index, "Succeeded")

    [coordinator] = the_pod(scene, "job-ps-0")["spec"]["initContainers"]

    assert coordinator["command"][3:] == ["job", "ps=0-0", *awaited]


def test_those_that_are_done_are_not_waited_for_after_their_pods_were_removed():
    scene = a_paddle(ps=1, worker=2).all("Running").pod("worker", 0, "Succeeded")
    later = scene.after().gone("worker", 0).gone("ps", 0)

    [coordinator] = the_pod(later, "job-ps-0")["spec"]["initContainers"]

    assert coordinator["command"][3:] == ["job", "ps=0-0", "worker=1-1"]


def test_seven_thousand_names_fit_into_the_arguments_of_a_process():
    scene = a_paddle(worker=7000)

    [coordinator] = the_pod(scene)["spec"]["initContainers"]

    assert coordinator["command"][3:] == ["job", "worker=0-6999"]


def coordinated(scene: Scene, **tools: str) -> subprocess.CompletedProcess[str]:
    """The coordinator's script at work, with tools of ours in place of the system's."""
    [container] = the_pod(scene)["spec"]["initContainers"]
    shell, flag, script, *arguments = container["command"]
    ours = "".join(f"{name}() {{ {does}; }}\n" for name, does in tools.items())
    command = [f"/bin/{shell}", flag, ours + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


@pytest.mark.parametrize(
    ("getent", "nslookup"),
    [pytest.param("true", "false", id="getent"), pytest.param("return 127", "true", id="nslookup")],
)
def test_the_script_ends_when_all_names_resolve(getent, nslookup):
    scene = a_paddle(ps=1, worker=2)

    ended = coordinated(scene, getent=getent, nslookup=nslookup, sleep='echo "sleep $@"')

    assert (ended.returncode, ended.stdout) == (0, "sleep 2\n")


def test_the_script_asks_for_every_name_once_a_second_until_it_is_there():
    scene = a_paddle(ps=1, worker=2)
    waits = '[ "$2" != job-worker-0 ] || [ "$try" = 3 ]'

    ended = coordinated(scene, getent=waits, nslookup="false", sleep='echo "sleep $1"')

    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        "check 1: job-worker-0 has no address yet",
        "sleep 1",
        "check 2: job-worker-0 has no address yet",
        "sleep 1",
        "sleep 2",
    ]


def test_the_script_asks_for_the_first_and_the_last_of_every_range_and_nobody_else():
    scene = a_paddle(ps=2, worker=5).all("Running").pod("worker", 3, "Succeeded").gone("worker", 0)

    ended = coordinated(scene, getent='asked="$asked $2"', nslookup="false", sleep='echo "$asked"')

    assert ended.stdout == " job-ps-0 job-ps-1 job-worker-0 job-worker-1 job-worker-2 job-worker-4\n"


def test_the_script_goes_on_without_a_name_that_a_thousand_tries_have_not_found():
    absent = '[ "$2" != job-ps-1 ] && [ "$2" != job-ps-2 ]'

    ended = coordinated(a_paddle(ps=3, worker=1), getent=absent, nslookup="false", sleep=":")

    lines = ended.stdout.splitlines()
    assert ended.returncode == 0
    assert lines[999:] == ["check 1000: job-ps-1 has no address yet", "check 1000: job-ps-2 has no address yet"]
