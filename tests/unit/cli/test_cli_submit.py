"""What `run` makes of manifests on a cluster, and what it refuses before."""

import pytest

from trainmaster.api.settings import Settings
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.cli.follow import JobRef
from trainmaster.cli.submit import NAMESPACES, Submitter, checked, refuse_twins
from trainmaster.objects.resource import CONFIG_MAPS
from trainmaster.testing.fakeapi import FakeApi, Fault
from trainmaster.testing.operation import passing
from trainmaster.testing.scene import a_job


def a_manifest(name="ddp", **metadata):
    body = a_job("PyTorchJob", name).role("Master").manifest
    return {**body, "metadata": {"name": name, **metadata}}


def generated(prefix="ddp-"):
    body = a_manifest()
    return {**body, "metadata": {"generateName": prefix}}


def config(text, **metadata):
    metadata = {"name": "code", **metadata}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"main.py": text}}


@pytest.fixture
def submit(stage):
    stage.api = FakeApi([*stage.api.resources, NAMESPACES])

    def submit(*bodies, namespace="default", makes_namespaces=True):
        """The exit code, and the jobs with when they were made."""
        made: dict[JobRef, float] = {}

        async def work(session):
            submission = checked([Document("all.yaml", body) for body in bodies], Settings())
            await Submitter(session.client, namespace, makes_namespaces=makes_namespaces).submit(submission, made)
            return 0

        return stage.run("run", work), made

    return submit


def test_what_jobs_use_is_brought_to_what_the_manifest_says_now(stage, submit):
    submit(config("print('old')"))

    submit(config("print('new')"))

    assert stage.api.object(CONFIG_MAPS, "default", "code")["data"] == {"main.py": "print('new')"}


def test_fields_that_others_own_are_not_taken_from_them(stage, submit, capsys):
    stage.api.fail_next("PATCH *", Fault(409, "Conflict", 'conflict with "kubectl": .data.main.py'))

    code, made = submit(config("print('new')"), a_manifest())

    told = capsys.readouterr().err
    assert (code, made) == (1, {})
    assert 'all.yaml: ConfigMap code: conflict with "kubectl": .data.main.py' in told
    assert "trainmaster apply --force-conflicts -f FILE" in told


def test_a_namespace_of_the_manifest_keeps_its_labels(stage, submit):
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lab", "labels": {"team": "x"}}}

    submit(config("pass", namespace="lab"), namespace)

    assert stage.api.object(NAMESPACES, "", "lab")["metadata"]["labels"] == {"team": "x"}


def test_the_namespace_of_those_that_name_none_is_made_too(stage, submit):
    code, (job,) = submit(a_manifest(), namespace="teamy")

    assert (code, job.namespace) == (0, "teamy")
    assert [item["metadata"]["name"] for item in stage.api.objects(NAMESPACES)] == ["teamy"]


def test_on_the_cluster_of_others_no_namespace_is_made(stage, submit):
    submit(a_manifest(), namespace="teamy", makes_namespaces=False)

    assert stage.api.objects(NAMESPACES) == []


def test_a_job_is_made_under_the_name_that_the_server_gives_it(stage, submit):
    code, made = submit(generated(), generated())

    (resource,) = [one for one in stage.api.resources if one.plural == "pytorchjobs"]
    stored = [item["metadata"]["name"] for item in stage.api.objects(resource)]
    assert code == 0
    assert [job.name for job in made] == stored
    assert len({*stored}) == 2
    assert all(name.startswith("ddp-") for name in stored)


def test_what_jobs_use_may_have_its_name_made_as_well(stage, submit):
    body = config("pass")
    body["metadata"] = {"generateName": "code-"}

    code, _ = submit(body)

    (stored,) = stage.api.objects(CONFIG_MAPS)
    assert code == 0
    assert stored["metadata"]["name"].startswith("code-")


def test_each_job_has_the_moment_at_which_it_was_made(stage, submit):
    made: dict[JobRef, float] = {}

    async def work(session):
        submitter = Submitter(session.client, "default", makes_namespaces=False)
        for name in ("one", "two"):
            await submitter.submit(checked([Document("all.yaml", a_manifest(name))], Settings()), made)
            await passing(7)
        return 0

    stage.run("run", work)

    first, second = made.values()
    assert second - first == pytest.approx(7)


def test_a_prefix_that_makes_no_name_is_told_as_what_the_user_gave():
    with pytest.raises(BadDocument) as told:
        checked([Document("all.yaml", generated("DDP_"))], Settings())

    assert 'metadata.generateName: Invalid value: "DDP_xxxxx"' in str(told.value)


@pytest.mark.parametrize("metadata", [None, {}, {"labels": {}}], ids=["none", "empty", "no name"])
def test_what_has_no_name_is_refused_before_anything_is_made(metadata):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}

    with pytest.raises(BadDocument, match=r"all.yaml: ConfigMap \?: metadata.name is needed"):
        checked([Document("all.yaml", body)], Settings())


@pytest.mark.parametrize(
    ("second", "where"),
    [
        pytest.param(Document("a.yaml", a_manifest()), "twice; leave", id="same file"),
        pytest.param(Document("b.yaml", a_manifest()), "twice, first in a.yaml; leave", id="two files"),
        pytest.param(Document("b.yaml", a_manifest(namespace="default")), "first in a.yaml", id="namespace told"),
    ],
)
def test_a_job_that_is_given_twice_is_refused(second, where):
    with pytest.raises(BadDocument) as told:
        refuse_twins([Document("a.yaml", a_manifest()), second], "default")

    assert str(told.value).startswith(f"{second.source}: PyTorchJob ddp: it is given ")
    assert where in str(told.value)


@pytest.mark.parametrize(
    "others",
    [
        pytest.param([a_manifest("other")], id="another name"),
        pytest.param([a_manifest(namespace="team")], id="another namespace"),
        pytest.param([{**a_manifest(), "kind": "JAXJob"}], id="another kind"),
        pytest.param([generated(), generated()], id="names to be made"),
    ],
)
def test_jobs_that_differ_are_not_taken_for_one(others):
    refuse_twins([Document("a.yaml", body) for body in (a_manifest(), *others)], "default")
