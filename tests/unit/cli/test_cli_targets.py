"""Which objects words on the command line mean."""

import pytest

from trainmaster.cli import targets
from trainmaster.objects.resource import Resource
from trainmaster.testing.fakeapi import Fault


def parsed(stage, *words, everywhere=False):
    found: list[str] = []

    async def work(session):
        found.extend(map(str, await targets.parse(session, words)))
        return 0

    return stage.run("test", work, everywhere=everywhere), found


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        pytest.param(["pytorchjob/ddp"], ["pytorchjob.kubeflow.org/ddp"], id="pair"),
        pytest.param(["pytorchjobs", "a", "b"], ["pytorchjob.kubeflow.org/a", "pytorchjob.kubeflow.org/b"], id="names"),
        pytest.param(["po/a", "svc/b"], ["pod/a", "service/b"], id="short names"),
        pytest.param(["PO,Service"], ["pods", "services"], id="kinds"),
        pytest.param(["ddp"], ["pytorchjob.kubeflow.org/ddp"], id="job by name alone"),
        pytest.param(["node"], ["nodes"], id="kind before name"),
    ],
)
def test_words_mean_objects(stage, words, wanted):
    stage.job()

    assert parsed(stage, *words) == (0, wanted)


def test_no_words_mean_every_kind_of_job(stage):
    code, found = parsed(stage)

    assert code == 0
    assert {"tfjobs", "pytorchjobs", "jaxjobs"} <= set(found)
    assert "pods" not in found


def test_a_name_that_two_jobs_have_must_be_told_apart(stage, capsys):
    stage.job("PyTorchJob", "ddp")
    stage.job("JAXJob", "ddp", master=False)

    code, _ = parsed(stage, "ddp")

    assert code == 2
    assert "pytorchjob.kubeflow.org/ddp, jaxjob.kubeflow.org/ddp" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        pytest.param(["nobody"], 1, "neither a training job in namespace default nor a kind", id="nobody"),
        pytest.param(["pods/a", "b"], 2, "either all words are KIND/NAME", id="mixed"),
        pytest.param(["pods/"], 2, "KIND/NAME", id="half"),
        pytest.param(["pods,nope"], 2, "serves no nope", id="unknown of several"),
    ],
)
def test_what_cannot_be_meant_is_told(stage, capsys, words, code, said):
    assert parsed(stage, *words)[0] == code
    assert said in capsys.readouterr().err


def test_a_cluster_without_job_kinds_is_told_how_to_get_them(stage, capsys):
    for resource in [one for one in stage.api.resources if one.group == "kubeflow.org"]:
        stage.api.resources.discard(resource)
    stage.api.resources.difference_update({r for r in stage.api.resources if "job" in r.plural})

    assert parsed(stage)[0] == 1
    assert "trainmaster manifests | kubectl apply -f -" in capsys.readouterr().err


def test_a_name_across_all_namespaces_is_refused(stage, capsys):
    assert parsed(stage, "ddp", everywhere=True)[0] == 2
    assert "use -n instead of -A" in capsys.readouterr().err


def test_a_kind_that_one_may_not_see_is_not_taken_for_absent(stage, capsys):
    stage.api.fail_next("GET */tfjobs/*", Fault(403))

    code, _ = parsed(stage, "ddp")

    assert code == 1
    assert "(403 Forbidden)" in capsys.readouterr().err


def test_of_kinds_with_one_name_ours_comes_first(stage):
    stage.api.resources.add(Resource("a.example.org", "v1", "pytorchjobs", "PyTorchJob"))

    assert parsed(stage, "pytorchjobs/x") == (0, ["pytorchjob.kubeflow.org/x"])
    assert parsed(stage, "pytorchjobs.a.example.org/x") == (0, ["pytorchjob.a.example.org/x"])
