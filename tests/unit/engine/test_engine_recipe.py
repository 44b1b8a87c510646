"""A plan holds recipes, not objects: ten thousand pods that list each other would not fit into memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from tests.unit.engine.test_engine_size import JOBS

from trainmaster.engine import pods
from trainmaster.engine.actions import Create
from trainmaster.engine.blueprint import blueprint
from trainmaster.engine.observed import Observed
from trainmaster.engine.plan import plan
from trainmaster.objects.meta import Json, encode, mutable
from trainmaster.objects.resource import PODS, SERVICES
from trainmaster.testing.scene import NOW, Scene, a_job

FEW, MANY = 100, 300
each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Pod templates that were copied, one for each pod that was built."""
    made: list[object] = []

    def counted(declared: Json) -> dict[str, Any]:
        made.append(declared)
        return mutable(declared)

    monkeypatch.setattr(pods, "mutable", counted)
    return made


def of_replicas(actions: Iterable[object]) -> list[Create]:
    return [action for action in actions if isinstance(action, Create) and action.resource in (PODS, SERVICES)]


@each_job
def test_planning_builds_no_pod(job: Callable[[int], Scene], copies: list[object]) -> None:
    seen = job(4).observed()

    plan(seen, NOW)
    listed = list(blueprint(seen))

    assert not copies
    assert len({action.name for action in listed}) >= 4


@each_job
def test_each_pod_is_built_from_one_copy_of_its_template(job: Callable[[int], Scene], copies: list[object]) -> None:
    listed = [action for action in blueprint(job(4).observed()) if action.resource == PODS]

    bodies = [action.body for action in listed]

    assert len(copies) == len(listed)
    assert [body["metadata"]["name"] for body in bodies] == [action.name for action in listed]


@each_job
def test_who_builds_twice_gets_the_same(job: Callable[[int], Scene]) -> None:
    for action in blueprint(job(3).observed()):
        assert action.body == action.body


def test_two_passes_over_the_same_job_make_equal_plans() -> None:
    scene = a_job("TFJob").role("PS").role("Worker", 3)

    assert plan(scene.observed(), NOW) == plan(scene.observed(), NOW)


def test_a_plan_that_is_printed_names_its_pods_and_no_more() -> None:
    made = plan(a_job("TFJob").role("Worker", 2).observed(), NOW)

    shown = [repr(action.recipe) for action in of_replicas(made.actions)]

    assert shown[-1] == "PodRecipe(job-worker-1)"
    assert max(map(len, shown)) < 50


def peak_of(act: Callable[[], object]) -> int:
    """Bytes that were allocated at most: the same on every machine."""
    tracemalloc.start()
    try:
        kept = act()
        assert kept is not None
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@each_job
def test_a_replica_more_takes_less_than_its_pod(job: Callable[[int], Scene]) -> None:
    few, many = (job(replicas).observed() for replicas in (FEW, MANY))
    smallest = min(len(encode(action.body)) for action in blueprint(job(2).observed()) if action.resource == PODS)
    for seen in (few, many):
        plan(seen, NOW)  # what is computed once for a job stays

    growth = peak_of(lambda: plan(many, NOW)) - peak_of(lambda: plan(few, NOW))

    assert growth / (MANY - FEW) < 2 * smallest


def written(seen: Observed) -> int:
    """As by the operator: one after another."""
    return sum(len(encode(action.body)) for action in blueprint(seen))


def test_bodies_that_list_each_other_are_never_all_in_memory() -> None:
    seen = a_job("TFJob").role("Worker", MANY).observed()

    size = written(seen)
    peak = peak_of(lambda: written(seen))

    assert peak < size / 5
