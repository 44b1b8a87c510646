"""Ports on the nodes' network: which block a job gets, and that no two jobs share one."""

import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.objects.meta import Json
from trainmaster.objects.resource import CONFIG_MAPS, EVENTS, PODS
from trainmaster.operator.hostports import BadRange, free_port, parse_range
from trainmaster.testing import clock
from trainmaster.testing.fakeapi import FakeApi
from trainmaster.testing.operation import an_api, job_of, operating, passing, quiet, set_phases, submit


def a_host_job(name: str = "job", **annotations: str) -> Json:
    return (
        a_paddle(worker=1, intranet="Host", cleanPodPolicy="Always").meta(name=name, annotations=annotations).manifest
    )


def port_of(api: FakeApi, job: Json) -> str:
    return str(job_of(api, job)["metadata"].get("annotations", {}).get("host-port", ""))


def run(api: FakeApi, *jobs: Json, **options: str) -> None:
    async def main() -> None:
        async with operating(api, **options):
            for job in jobs:
                submit(api, job)
            await quiet(api)

    clock.run(main())


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        pytest.param([], 100, id="none taken"),
        pytest.param([100], 120, id="the first"),
        pytest.param([120], 100, id="the second"),
        pytest.param([160, 100, 120], 140, id="a gap"),
        pytest.param([110], 130, id="across"),
        pytest.param([95], 115, id="from below"),
        pytest.param([119], 139, id="no room before"),
        pytest.param([100, 120, 140, 160], None, id="all"),
        pytest.param([100, 120, 141, 150], None, id="no block of the size"),
    ],
)
def test_the_lowest_free_block_is_dealt_out(taken, expected):
    blocks = [range(start, start + 20) for start in taken]

    assert free_port((100, 179), 20, blocks) == expected


def test_a_range_is_two_ports():
    assert parse_range("35000, 65000") == (35000, 65000)


@pytest.mark.parametrize("text", ["", "35000", "65000,35000", "0,100", "1,70000", "a,b", "1,2,3"])
def test_anything_else_is_no_range(text):
    with pytest.raises(BadRange, match="first and the last port, such as 35000,65000"):
        parse_range(text)


def test_every_job_has_a_block_of_its_own_before_its_pods_are_made():
    api, jobs = an_api(), [a_host_job(f"job-{number}") for number in range(20)]

    run(api, *jobs)

    ports = sorted(int(port_of(api, job)) for job in jobs)
    assert ports == list(range(35000, 35400, 20))
    assert len(api.objects(PODS)) == 20


def test_a_job_that_is_not_on_the_nodes_network_gets_none():
    api, job = an_api(), a_paddle(worker=1).manifest

    run(api, job)

    assert port_of(api, job) == ""


def test_what_a_job_has_it_keeps():
    api, job = an_api(), a_host_job(**{"host-port": "40000"})

    run(api, job, port_range="100,200")

    assert port_of(api, job) == "40000"


@pytest.mark.parametrize("text", ["many", "0", "65530", ""])
def test_what_is_no_port_is_replaced(text):
    api, job = an_api(), a_host_job(**{"host-port": text})

    run(api, job)

    assert port_of(api, job) == "35000"


def test_a_copy_of_a_running_job_does_not_get_its_ports():
    api, first, copy = an_api(), a_host_job("first"), a_host_job("copy", **{"host-port": "35000"})

    async def main():
        async with operating(api):
            submit(api, first)
            await quiet(api)
            submit(api, copy)
            await quiet(api)

    clock.run(main())

    assert (port_of(api, first), port_of(api, copy)) == ("35000", "35020")


def test_a_block_is_dealt_out_again_when_its_job_has_ended_and_its_pods_are_gone():
    api, first, second = an_api(), a_host_job("first"), a_host_job("second")

    async def main():
        async with operating(api):
            submit(api, first)
            await quiet(api)
            set_phases(api, "Succeeded", 0)
            await quiet(api)
            submit(api, second)
            await quiet(api)

    clock.run(main())

    assert (port_of(api, first), port_of(api, second)) == ("35000", "35000")


def test_a_job_for_which_no_ports_are_left_waits_and_says_so():
    api, first, second = an_api(), a_host_job("first"), a_host_job("second")

    async def main():
        async with operating(api, port_range="100,119"):
            submit(api, first)
            await quiet(api)
            submit(api, second)
            await quiet(api)
            waiting = [pod["metadata"]["name"] for pod in api.objects(PODS)]
            set_phases(api, "Succeeded", 0)
            await passing(120)
            return waiting

    waiting = clock.run(main())

    assert waiting == ["first-worker-0"]
    assert [pod["metadata"]["name"] for pod in api.objects(PODS)] == ["second-worker-0"]
    [event] = [event for event in api.objects(EVENTS) if event["reason"] == "NoHostPorts"]
    assert event["involvedObject"]["name"] == "second"
    assert "between 100 and 119" in event["message"]


def test_the_ports_reach_the_processes():
    api, job = an_api(), a_host_job()

    async def main():
        async with operating(api):
            submit(api, job)
            await quiet(api)
            [pod] = api.objects(PODS)
            api.put(PODS, {**pod, "status": {"phase": "Pending", "podIP": "192.0.2.7"}})
            await quiet(api)

    clock.run(main())

    [config] = [held for held in api.objects(CONFIG_MAPS) if held["metadata"]["name"] == "job"]
    assert config["data"]["PADDLE_PORT"] == "35000"
    assert config["data"]["PADDLE_TRAINER_ENDPOINTS"] == "192.0.2.7:35000"


def test_no_annotation_of_one_job_stops_another():
    api, bad, good = an_api(), a_host_job("bad", **{"host-port": "9" * 5000}), a_host_job("good")

    run(api, bad, good)

    assert sorted(pod["metadata"]["name"] for pod in api.objects(PODS)) == ["bad-worker-0", "good-worker-0"]
    assert {port_of(api, bad), port_of(api, good)} == {"35000", "35020"}


def test_a_job_that_waits_for_ports_is_seen_to_be_pending():
    api, first, second = an_api(), a_host_job("first"), a_host_job("second")

    run(api, first, second, port_range="100,119")

    [waiting] = [job_of(api, job)["status"] for job in (first, second) if not port_of(api, job)]
    assert (waiting["phase"], waiting["mode"], waiting["worker"]["ready"]) == ("Pending", "Single", "0/1")


def test_a_job_that_waits_for_ports_ends_at_its_deadline():
    api, first, second = an_api(), a_host_job("first"), a_host_job("second")
    second = {**second, "spec": {**second["spec"], "runPolicy": {"activeDeadlineSeconds": 100}}}

    async def main():
        async with operating(api, port_range="100,119"):
            submit(api, first)
            await quiet(api)
            submit(api, second)
            await passing(200)

    clock.run(main())

    assert job_of(api, second)["status"]["phase"] == "Failed"


def test_a_finished_job_of_another_operator_holds_no_ports():
    api, old = an_api(), a_host_job("old", **{"host-port": "100"})
    new = a_host_job("new")

    async def main():
        api.put(a_paddle().framework.resource, {**old, "status": {"phase": "Completed"}})
        async with operating(api, port_range="100,119"):
            submit(api, new)
            await quiet(api)

    clock.run(main())

    assert port_of(api, new) == "100"
