"""The number of workers of an elastic job, told to its processes through their etcd."""

import base64

import msgspec
import pytest
from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.api.framework import Shared
from trainmaster.kube.errors import Unreachable
from trainmaster.kube.transport import Request, Response
from trainmaster.objects.resource import EVENTS, PODS
from trainmaster.operator import elastic
from trainmaster.operator.elastic import Etcd, EtcdError, Followed
from trainmaster.testing import clock
from trainmaster.testing.operation import an_api, conditions_of, edit, operating, passing, quiet, set_phases, submit

NP = "/paddle/default-job/np"
THREE = Shared(NP, "3", "scaled replicas to 3")


def text(encoded: str) -> str:
    return base64.b64decode(encoded).decode()


class FakeEtcd:
    """A member in memory, spoken to as over HTTP."""

    def __init__(self, np: str = "") -> None:
        self.values = {NP: np} if np else {}
        self.asked: list[str] = []
        self.status = 200
        self.is_down = False
        self.is_closed = False

    async def send(self, request: Request) -> Response:
        if self.is_down:
            raise Unreachable("nobody there")
        question = msgspec.json.decode(request.body)
        self.asked.append(request.path)
        key = text(question["key"])
        if request.path == "/v3/kv/put":
            self.values[key] = text(question["value"])
            return Response.whole(self.status, {}, b'{"header":{}}')
        answer: dict[str, object] = {"header": {}}
        if key in self.values:
            value = base64.b64encode(self.values[key].encode()).decode()
            answer |= {"kvs": [{"key": question["key"], "value": value}], "count": "1"}
        return Response.whole(self.status, {}, msgspec.json.encode(answer))

    async def close(self) -> None:
        self.is_closed = True


def following(*members: FakeEtcd, wanted: Shared = THREE) -> Followed:
    standing = iter(members)
    return clock.run(Etcd(["one"] * len(members), lambda _: next(standing)).follow([wanted]))


def test_a_value_that_differs_is_brought_up_to_date():
    etcd = FakeEtcd(np="2")

    assert following(etcd) == Followed(changed=(THREE,))
    assert etcd.values == {NP: "3"}


def test_a_value_that_is_right_is_left():
    etcd = FakeEtcd(np="3")

    assert following(etcd) == Followed()
    assert etcd.asked == ["/v3/kv/range"]


def test_a_key_that_is_not_there_is_not_made():
    etcd = FakeEtcd()

    assert following(etcd) == Followed(missing=(THREE,))
    assert etcd.values == {}


def test_a_member_that_is_down_is_passed_over():
    down, up = FakeEtcd(np="2"), FakeEtcd(np="2")
    down.is_down = True

    assert following(down, up) == Followed(changed=(THREE,))


def test_a_member_without_a_leader_is_passed_over():
    leaderless, up = FakeEtcd(np="2"), FakeEtcd(np="2")
    leaderless.status = 503

    assert following(leaderless, up) == Followed(changed=(THREE,))
    assert up.values == {NP: "3"}


def test_a_member_that_was_passed_over_is_not_asked_first_again():
    leaderless, up = FakeEtcd(np="2"), FakeEtcd(np="2")
    leaderless.status = 503

    following(leaderless, up)

    assert leaderless.asked == ["/v3/kv/range"]
    assert up.asked == ["/v3/kv/range", "/v3/kv/put"]


def test_if_all_are_down_the_last_ones_word_is_passed_on():
    down = FakeEtcd()
    down.is_down = True

    with pytest.raises(Unreachable):
        following(down, down)


def test_a_refusal_says_what_to_check():
    etcd = FakeEtcd(np="2")
    etcd.status = 401

    with pytest.raises(EtcdError, match=r"POST /v3/kv/range: 401 .*; check --etcd-server"):
        following(etcd)


def test_an_answer_of_somebody_else_says_what_to_check():
    class Web(FakeEtcd):
        async def send(self, request: Request) -> Response:
            return Response.whole(200, {}, b"<html>")

    with pytest.raises(EtcdError, match="the answer is not etcd's"):
        following(Web())


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        pytest.param("etcd:2379", "http://etcd:2379", id="host and port"),
        pytest.param("https://etcd:2379", "https://etcd:2379", id="URL"),
    ],
)
def test_endpoints_are_hosts_with_ports_or_urls(endpoint, url):
    assert elastic.url_of(endpoint) == url


@pytest.fixture
def etcd(monkeypatch):
    """The etcd that the operator reaches, in which the job's launcher has written 2."""
    standing = FakeEtcd(np="2")
    monkeypatch.setattr(elastic, "HttpTransport", lambda config: standing)
    return standing


def scaled_events(api) -> list[str]:
    return [event["message"] for event in api.objects(EVENTS) if event["reason"] == "Scaled"]


def test_scaling_an_elastic_job_makes_its_pods_and_tells_its_processes(etcd):
    api, scene = an_api(), a_paddle(worker=2, elastic=1)

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, scene.manifest)
            await quiet(api)
            set_phases(api, "Running")
            edit(api, scene.scaled("worker", 3).manifest)
            await quiet(api)

    clock.run(main())

    assert etcd.values == {NP: "3"}
    assert scaled_events(api) == ["scaled replicas to 3"]
    assert len(api.objects(PODS)) == 3
    assert etcd.is_closed


def test_without_etcd_pods_come_and_go_all_the_same(etcd):
    api, scene = an_api(), a_paddle(worker=3, elastic=1)

    async def main():
        async with operating(api):
            submit(api, scene.manifest)
            await quiet(api)
            edit(api, scene.scaled("worker", 1).manifest)
            await quiet(api)

    clock.run(main())

    assert etcd.asked == []
    assert [pod["metadata"]["name"] for pod in api.objects(PODS)] == ["job-worker-0"]


@pytest.mark.parametrize(
    "scene",
    [
        pytest.param(a_paddle(worker=3), id="not elastic"),
        pytest.param(a_paddle(ps=1, worker=3, elastic=1), id="with servers"),
    ],
)
def test_other_jobs_have_nothing_to_tell(etcd, scene):
    api = an_api()

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, scene.manifest)
            await quiet(api)

    clock.run(main())

    assert etcd.asked == []


def test_an_etcd_that_comes_back_is_told_later(etcd):
    api, scene = an_api(), a_paddle(worker=3, elastic=1)
    etcd.is_down = True

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, scene.manifest)
            await quiet(api)
            pods = len(api.objects(PODS))
            etcd.is_down = False
            await passing(600)
            return pods

    assert clock.run(main()) == 3
    assert etcd.values == {NP: "3"}


def test_a_key_that_the_launcher_makes_late_is_brought_up_to_date(etcd):
    api, scene = an_api(), a_paddle(worker=2, elastic=1)
    etcd.values.clear()

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, scene.manifest)
            await quiet(api)
            edit(api, scene.scaled("worker", 3).manifest)
            await quiet(api)
            set_phases(api, "Running")
            await quiet(api)
            etcd.values[NP] = "2"
            await passing(60)

    clock.run(main())

    assert etcd.values == {NP: "3"}
    assert scaled_events(api) == ["scaled replicas to 3"]


def test_a_key_that_is_right_is_not_asked_for_again_and_again(etcd):
    api = an_api()

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, a_paddle(worker=2, elastic=1).manifest)
            await quiet(api)
            asked = len(etcd.asked)
            await passing(3600)
            return asked

    asked = clock.run(main())

    assert len(etcd.asked) == asked


def test_an_etcd_that_cannot_be_reached_is_told_to_users_once(etcd):
    api = an_api()
    etcd.is_down = True

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, a_paddle(worker=3, elastic=1).manifest)
            await quiet(api)
            await passing(600)

    clock.run(main())

    [event] = [event for event in api.objects(EVENTS) if event["reason"] == "EtcdUnreachable"]
    assert (event["type"], event.get("count", 1)) == ("Warning", 1)
    assert "nobody there" in event["message"]


def test_a_deadline_is_kept_though_the_etcd_cannot_be_reached(etcd):
    api, scene = an_api(), a_paddle(worker=2, elastic=1).policy(activeDeadlineSeconds=100)
    etcd.is_down = True

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, scene.manifest)
            await quiet(api)
            set_phases(api, "Running")
            await passing(200)

    clock.run(main())

    assert conditions_of(api, scene.manifest)[-1] == ("Failed", "True")


def test_a_job_that_has_ended_is_told_nothing(etcd):
    api, scene = an_api(), a_paddle(worker=2, elastic=1)

    async def main():
        async with operating(api, etcd_server="etcd:2379"):
            submit(api, scene.manifest)
            await quiet(api)
            set_phases(api, "Succeeded", 0)
            await quiet(api)
            etcd.values[NP] = "7"
            edit(api, scene.scaled("worker", 5).manifest)
            await quiet(api)

    clock.run(main())

    assert etcd.values == {NP: "7"}
