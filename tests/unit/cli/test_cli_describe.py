"""`trainmaster describe`: from what went wrong to what to do."""

import pytest

from trainmaster.cli.describe import DescribeOptions, describe
from trainmaster.objects.resource import CONFIG_MAPS, EVENTS


def run(stage, *words, **options):
    return stage.run("describe", lambda session: describe(session, DescribeOptions(words, **options)))


def event(stage, name, reason, message, *, uid="uid-PyTorchJob-ddp", at="2023-11-14T22:14:00Z", kind="Warning"):
    about = {"kind": "PyTorchJob", "name": "ddp", "uid": uid}
    body = {"involvedObject": about, "type": kind, "reason": reason, "message": message, "lastTimestamp": at}
    stage.api.put(EVENTS, {"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, **body})


def failed(stage):
    stage.job(conditions=stage.conditions(("Created", "made"), ("Failed", "1 Worker replica(s) failed.")))


def section(text, title):
    _, _, rest = text.partition(f"\n{title}")
    return rest.partition("\n\n")[0]


def test_the_rank_that_failed_first_is_told_with_its_last_words(stage, pods, capsys):
    failed(stage)
    stage.pod("master-0", status=pods.ended(1, at="2023-11-14T22:14:30Z"), log=b"connection lost\n", leader=True)
    stage.pod("worker-1", status=pods.ended(3, at="2023-11-14T22:14:10Z", message="CUDA error"), log=b"step 1\nboom\n")

    code = run(stage, "ddp")

    told = section(capsys.readouterr().out, "First failure:")
    assert code == 0
    for part in ("worker-1", "pod ddp-worker-1", "node-1", "exit code 3 (Error)", "CUDA error", "step 1", "boom"):
        assert part in told
    assert "connection lost" not in told


def test_state_says_since_when_and_why(stage, capsys):
    failed(stage)

    run(stage, "pytorchjob/ddp")

    out = capsys.readouterr().out
    assert "State:       Failed, since 50s (2023-11-14T22:14:00Z)" in out
    assert "Why:         PyTorchJobFailed: 1 Worker replica(s) failed." in out


@pytest.mark.parametrize(
    ("status", "version"), [({}, "v1"), ({"authoredVersion": "v2beta1"}, "v2beta1")], ids=["stored", "authored"]
)
def test_the_version_that_is_told_is_the_one_that_was_written(stage, capsys, status, version):
    stage.job(conditions=stage.conditions(("Running", "")), **status)

    run(stage, "ddp")

    assert f"Kind:        PyTorchJob (kubeflow.org/{version})" in capsys.readouterr().out


def test_every_rank_has_a_row_in_natural_order(stage, pods, capsys):
    stage.job(conditions=stage.conditions(("Running", "")), attempts={"worker-2": 1})
    stage.pod("worker-10", status=pods.waiting("ImageNotMapped", "no entry"))
    stage.pod("worker-2", status=pods.ended(0, "Completed", phase="Succeeded", restarts=2))

    run(stage, "ddp")

    rows = [line.split() for line in section(capsys.readouterr().out, "Ranks:").splitlines()[1:]]
    assert rows[0] == ["RANK", "POD", "NODE", "PHASE", "EXIT", "RESTARTS", "AGE"]
    assert rows[1] == ["worker-2", "ddp-worker-2", "node-1", "Succeeded", "0", "3", "90s"]
    assert rows[2] == ["worker-10", "ddp-worker-10", "node-1", "ImageNotMapped", "-", "0", "90s"]


def test_events_of_the_job_and_its_pods_come_newest_last(stage, capsys):
    failed(stage)
    event(stage, "b", "Later", "second", at="2023-11-14T22:14:20Z")
    event(stage, "a", "Sooner", "first", at="2023-11-14T22:14:10Z")
    event(stage, "c", "Foreign", "not ours", uid="another")

    run(stage, "ddp")

    told = section(capsys.readouterr().out, "Events (newest last):")
    assert told.index("first") < told.index("second")
    assert "not ours" not in told


def unschedulable():
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "1 Insufficient cpu"}
    return {"phase": "Pending", "conditions": [condition]}


def crashed():
    return {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "2023-11-14T22:14:10Z"}}


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        pytest.param(lambda p: p.waiting("ImageNotMapped", "x"), "trainmaster.yaml", id="image"),
        pytest.param(lambda p: p.waiting("ImagePullBackOff", "x"), "imagePullSecrets", id="pull"),
        pytest.param(lambda p: unschedulable(), "There is no room for ddp-worker-0", id="unschedulable"),
        pytest.param(lambda p: p.waiting("CrashLoopBackOff", "x", last=crashed()), "--previous", id="crash loop"),
        pytest.param(
            lambda p: p.waiting("CreateContainerConfigError", "x"), "Mend what the message names", id="config"
        ),
        pytest.param(lambda p: p.ended(137, "OOMKilled"), "resources.limits.memory", id="memory"),
        pytest.param(lambda p: p.ended(137, "Error"), "SIGKILL", id="killed"),
        pytest.param(lambda p: p.ended(127), "check the command", id="no program"),
        pytest.param(lambda p: p.ended(139), "/dev/shm", id="segmentation fault"),
        pytest.param(lambda p: p.ended(1), "trainmaster logs pytorchjob/ddp --rank worker-0", id="plain failure"),
    ],
)
def test_each_symptom_has_its_remedy(stage, pods, capsys, status, remedy):
    stage.job(conditions=stage.conditions(("Created", "")))
    stage.pod("worker-0", status=status(pods))

    run(stage, "ddp")

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("What to do: ")
    assert remedy in last


@pytest.mark.parametrize(
    ("code", "cause", "is_about_memory"),
    [pytest.param(137, "SIGKILL", True, id="killed"), pytest.param(139, "SIGSEGV", False, id="segmentation fault")],
)
def test_a_signal_that_mpirun_passes_on_is_not_said_to_have_ended_the_launcher(
    stage, pods, capsys, code, cause, is_about_memory
):
    stage.job(conditions=stage.conditions(("Created", "")))
    stage.pod("launcher", status=pods.ended(code))

    run(stage, "ddp")

    last = capsys.readouterr().out.splitlines()[-1]
    assert f"as mpirun does when {cause} ends one of the processes" in last
    assert "trainmaster logs pytorchjob/ddp --rank launcher" in last
    assert ("limits.memory of the Worker" in last) is is_about_memory


@pytest.mark.parametrize("status", ["ended", "looping"])
def test_a_cause_that_the_log_names_goes_before_advice_to_read_it(stage, pods, capsys, status):
    stage.job(conditions=stage.conditions(("Created", "")))
    state = pods.ended(1) if status == "ended" else pods.waiting("CrashLoopBackOff", "x", last=crashed())
    stage.pod("worker-0", status=state, log=b"Traceback\nModuleNotFoundError: No module named 'torch'\n")

    run(stage, "ddp")

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("What to do: The image of worker-0 has no Python module torch")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        pytest.param("PyTorchJobFailedValidation", "spec.x: Required", id="by its reason"),
        pytest.param("MSJobFailed", "MSJob failed validation because spec.x: Required", id="by its words"),
    ],
)
def test_an_invalid_job_is_told_to_be_corrected(stage, capsys, reason, message):
    bad = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    stage.job(conditions=[bad])

    run(stage, "ddp")

    out = capsys.readouterr().out
    assert "spec.x: Required" in out
    assert "What to do: Correct the fields named above" in out


def test_a_name_that_is_taken_is_told(stage, capsys):
    stage.job(conditions=stage.conditions(("Created", "")))
    event(stage, "a", "FailedCreatePod", 'Error creating: pods "ddp-master-0" already exists and belongs to nobody')

    run(stage, "ddp")

    assert "What to do: Another object has a name that this job needs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("conditions", "spec", "remedy"),
    [
        pytest.param([], {}, "No operator has looked at this job", id="unseen"),
        pytest.param([("Suspended", "")], {"suspend": True}, "trainmaster resume pytorchjob/ddp", id="suspended"),
        pytest.param([("Failed", "was active longer than specified deadline")], {}, "activeDeadlineSeconds", id="late"),
        pytest.param([("Failed", "x")], {}, "set runPolicy.cleanPodPolicy to None", id="pods are gone"),
        pytest.param(
            [("Failed", "x")], {"cleanPodPolicy": "Running"}, "set runPolicy.cleanPodPolicy to None", id="Running"
        ),
        pytest.param(
            [("Failed", "x")],
            {"cleanPodPolicy": "None"},
            "though runPolicy.cleanPodPolicy is None: they were deleted by hand",
            id="pods are gone, and the manifest keeps them",
        ),
    ],
)
def test_a_job_without_pods_has_its_remedy_too(stage, capsys, conditions, spec, remedy):
    resource = stage.job(conditions=stage.conditions(*conditions))
    held = stage.api.object(resource, "default", "ddp")
    stage.api.put(resource, {**held, "spec": {**held["spec"], "runPolicy": spec}})

    run(stage, "ddp")

    assert remedy in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.parametrize(
    ("left", "remedy"),
    [
        pytest.param([], "set restartPolicy of the Launcher to Never", id="nothing is left"),
        pytest.param(["worker-0"], "set restartPolicy of the Launcher to Never", id="workers are left"),
        pytest.param(["launcher-x1"], "trainmaster logs pytorchjob/ddp --rank launcher-x1", id="the launcher is left"),
    ],
)
def test_the_log_of_a_launcher_is_kept_by_its_restart_policy_alone(stage, pods, capsys, left, remedy):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "x"}
    stage.job(conditions=[failed])
    for rank in left:
        is_worker = rank.startswith("worker")
        stage.pod(rank, status=pods.ended(0, "Completed", phase="Succeeded") if is_worker else pods.ended(1))

    run(stage, "ddp")

    told = capsys.readouterr().out.splitlines()[-1]
    assert remedy in told
    assert "cleanPodPolicy" not in told


def test_a_job_that_succeeded_needs_no_remedy(stage, pods, capsys):
    stage.job(conditions=stage.conditions(("Succeeded", "")))
    stage.pod("worker-0", status=pods.ended(1))

    run(stage, "ddp")

    out = capsys.readouterr().out
    assert "What to do" not in out
    assert "First failure" not in out


def test_the_log_of_a_restarted_container_is_that_of_the_attempt_that_failed(stage, pods):
    stage.job(conditions=stage.conditions(("Running", "")))
    stage.pod("worker-0", status=pods.waiting("CrashLoopBackOff", "x", last=crashed()))

    run(stage, "ddp")

    (asked,) = [request for request in stage.api.sent if request.path.endswith("/log")]
    assert dict(asked.params)["previous"] == "true"


def test_other_objects_are_shown_whole_with_their_events(stage, capsys):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}, "data": {"a": "b"}}
    stage.api.put(CONFIG_MAPS, body)
    event(stage, "e", "Seen", "by someone", uid="u")

    code = run(stage, "configmap/c")

    out = capsys.readouterr().out
    assert code == 0
    assert "  a: b" in out
    assert "by someone" in out


def test_nothing_to_describe_ends_with_1(stage, capsys):
    assert run(stage, "pytorchjobs") == 1
    assert "nothing to describe" in capsys.readouterr().err
