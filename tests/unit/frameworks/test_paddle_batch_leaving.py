"""Jobs of paddle-operator that are deleted: what it has left on them holds nobody up."""

from tests.unit.frameworks.paddle_jobs import a_paddle

from trainmaster.api.status import render
from trainmaster.engine.actions import Patch
from trainmaster.engine.plan import plan_rejected
from trainmaster.testing.scene import Scene

FINALIZER = "finalizers.paddlepaddle.org"


def going(*finalizers: str) -> Scene:
    scene = a_paddle(worker=1).all("Running").after()
    return scene.meta(deletionTimestamp="2023-11-14T22:13:20Z", finalizers=list(finalizers), resourceVersion="7")


def test_the_old_operators_finalizer_is_taken_off_a_job_that_is_deleted_and_no_other():
    made = going("mine", FINALIZER).plan()

    [action] = made.actions
    assert isinstance(action, Patch)
    assert action.resource == a_paddle().framework.resource
    assert action.body == {"metadata": {"resourceVersion": "7", "finalizers": ["mine"]}}


def test_nothing_else_is_done_for_a_job_that_is_deleted_and_its_phase_says_so():
    made = going("mine").plan()

    assert made.actions == ()
    assert render(made.status)["phase"] == "Terminating"


def test_a_job_that_lives_keeps_its_finalizers():
    scene = a_paddle(worker=1).all("Running").meta(finalizers=[FINALIZER])

    assert scene.framework.resource not in {action.resource for action in scene.plan().actions}


def test_an_invalid_job_is_failed_and_can_be_deleted():
    scene = a_paddle(ps=1, elastic=1)
    framework, bare = scene.framework, a_paddle(worker=1).job
    leaving = a_paddle(worker=1).meta(deletionTimestamp="2023-11-14T22:13:20Z", finalizers=[FINALIZER]).job

    refused = plan_rejected(framework, bare, scene.reading.problems, scene.now, has_pods=False)
    released = plan_rejected(framework, leaving, scene.reading.problems, scene.now, has_pods=False)

    assert render(refused.status)["phase"] == "Failed"
    assert [type(action) for action in released.actions] == [Patch]
