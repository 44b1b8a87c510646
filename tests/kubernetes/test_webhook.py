"""Admission by a real API server: a follower of the operator, with exactly its own rights, is asked about every job."""

import asyncio
import contextlib
import json
import subprocess
import threading
import time
from dataclasses import replace

import pytest
from tests.kubernetes.installed import NAMESPACE, PLURALS, SECRETS, Recording, connected, token_of_operator
from tools import kubectl as stock

from trainmaster import frameworks
from trainmaster.kube import config as kubeconfig
from trainmaster.kube.errors import ApiError, Invalid, NotFound, ServerError
from trainmaster.kube.transport import HttpTransport
from trainmaster.operator import install_webhooks
from trainmaster.operator.install import LABELS, NAME, Installation
from trainmaster.operator.main import operate
from trainmaster.operator.options import Options
from trainmaster.operator.webhook_protocol import MUTATING, VALIDATING
from trainmaster.operator.webhook_protocol import NAME as WEBHOOK
from trainmaster.testing.jobs import KINDS, a_small
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.ports import free_port
from trainmaster.testing.scene import a_job

PLURALS = {**PLURALS, "Secret": SECRETS, VALIDATING.kind: VALIDATING, MUTATING.kind: MUTATING}


def resource_of(job):
    found = frameworks.serving(job["apiVersion"], job["kind"])
    assert found is not None
    return replace(found[1], version=job["apiVersion"].partition("/")[2])


def nameable(job):
    return {**job, "metadata": {key: value for key, value in job["metadata"].items() if key != "uid"}}


def unfit(name):
    """Two masters, and no image."""
    return nameable(a_job("PyTorchJob", name).role("Master", 2, containers=[{"name": "pytorch"}]).manifest)


def fit(kind, name, **policy):
    return nameable(a_small(kind, name).policy(**policy).manifest)


class Replica:
    """One process of the operator, as far as a thread can be one: started and stopped at will."""

    def __init__(self, plane, account, port):
        self._plane, self._account, self._port = plane, account, port
        self.codes: list[tuple[int, str]] = []
        self._stop, self._thread = threading.Event(), threading.Thread()

    def start(self):
        self._stop.clear()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="replica")
        self._thread.start()

    def stop(self):
        self._stop.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    async def _main(self):
        options = Options(
            metrics_bind_address="0",
            health_probe_bind_address="0",
            leader_elect=True,
            leader_election_namespace=NAMESPACE,
            webhook_bind_address=f"127.0.0.1:{self._port}",
        )
        transport = Recording(HttpTransport(kubeconfig.load(str(self._account))), self.codes)
        stopped = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(operate(options, transport, stopped, home=NAMESPACE), name="replica")
            await asyncio.to_thread(self._stop.wait)
            stopped.set()


class Api:
    """The client as an administrator, one call at a time."""

    def __init__(self, plane):
        self._plane = plane

    def _do(self, act):
        async def main():
            async with connected(self._plane.kubeconfig) as client:
                return await act(client)

        return asyncio.run(main())

    def create(self, job):
        return self._do(lambda client: client.create(resource_of(job), job))

    def get(self, job):
        return self._do(lambda client: client.get(resource_of(job), job["metadata"]["name"], "default"))

    def patch(self, job, change):
        return self._do(lambda client: client.patch(resource_of(job), job["metadata"]["name"], change, "default"))

    def delete(self, job):
        return self._do(lambda client: client.delete(resource_of(job), job["metadata"]["name"], "default"))

    def registration(self, **change):
        """Of the validating webhook; with new values of some fields, if there are any."""

        async def act(client):
            held = await client.get(VALIDATING, WEBHOOK)
            if change:
                held["webhooks"] = [{**held["webhooks"][0], **change}]
                held = await client.update(VALIDATING, held)
            return held["webhooks"][0]

        return self._do(act)

    def tried(self, job):
        """The refusal of a job that is not to be stored; None when it is fit."""

        async def act(client):
            path = resource_of(job).path(job["metadata"]["namespace"])
            try:
                await client.request("POST", path, params=(("dryRun", "All"),), body=json.dumps(job).encode())
            except ApiError as error:
                return error
            return None

        return self._do(act)

    def until(self, check, what):
        deadline = time.monotonic() + PATIENCE
        while not check():
            assert time.monotonic() < deadline, f"waited {PATIENCE:g} s for {what}"
            time.sleep(0.1)

    def until_asked(self):
        self.until(lambda: self.tried(unfit("probe")) is not None, "the webhook to be asked")


def registered(port):
    """What an installation has, with a Service that leads out of the cluster, to this machine."""
    installation = Installation(frameworks.BUILT_IN, namespace=NAMESPACE, webhooks="all")
    for body in install_webhooks.webhooks(installation, NAME, LABELS):
        if body["kind"] == "Service":
            yield {**body, "spec": {"type": "ExternalName", "externalName": "localhost"}}
        elif "webhooks" in body:
            webhook = dict(body["webhooks"][0])
            service = {**webhook["clientConfig"]["service"], "port": port}
            yield {**body, "webhooks": [{**webhook, "clientConfig": {"service": service}}]}
        else:
            yield body


@pytest.fixture(scope="module")
def replica(plane, operator, tmp_path_factory):
    """Serves the webhook while another leads. Some bad jobs are older than the webhook is."""
    account = tmp_path_factory.mktemp("webhook") / "kubeconfig"
    port = free_port()

    async def prepare():
        async with connected(plane.kubeconfig) as admin:
            for name in ("broken-kept", "broken-mended", "broken-worse", "broken-deleted"):
                await admin.create(resource_of(unfit(name)), unfit(name))
            plane.write_kubeconfig(account, NAME, await token_of_operator(admin))
            for body in registered(port):
                await admin.create(PLURALS[body["kind"]], body)

    async def withdraw():
        async with connected(plane.kubeconfig) as admin:
            for resource in (VALIDATING, MUTATING):
                await admin.delete(resource, WEBHOOK)

    asyncio.run(prepare())
    running = Replica(plane, account, port)
    running.start()
    try:
        yield running
    finally:
        running.stop()
        asyncio.run(withdraw())


@pytest.fixture
def api(plane, replica):
    connection = Api(plane)
    connection.until_asked()
    return connection


def kubectl(plane, job, *words):
    return subprocess.run(
        [stock.kubectl(), f"--kubeconfig={plane.kubeconfig}", *words],
        input=json.dumps(job),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


def test_kubectl_shows_every_problem_of_a_refused_job(plane, api):
    result = kubectl(plane, unfit("refused"), "apply", "--validate=false", "-f", "-")

    assert result.returncode == 1
    assert 'The PyTorchJob "refused" is invalid' in result.stderr
    assert "spec.pytorchReplicaSpecs[Master].replicas: Forbidden: must be 1" in result.stderr
    assert "spec.pytorchReplicaSpecs[Master].template.spec.containers[0].image: Required value" in result.stderr
    with pytest.raises(NotFound):
        api.get(unfit("refused"))


def test_clients_get_the_problems_one_by_one(api):
    with pytest.raises(Invalid) as refusal:
        api.create(unfit("causes"))

    assert 'admission webhook "validate.trainmaster.dev" denied the request' in refusal.value.message
    fields = [cause["field"] for cause in refusal.value.details["causes"]]
    assert fields == [
        "spec.pytorchReplicaSpecs[Master].replicas",
        "spec.pytorchReplicaSpecs[Master].template.spec.containers[0].image",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_asked_about(api, kind):
    good = fit(kind, "asked-about")
    field = a_small(kind).framework.replicas_field
    bad = {**good, "spec": {**good["spec"], field: {**good["spec"][field], "Juggler": {"replicas": 1}}}}

    assert api.tried(good) is None
    assert f"spec.{field}[Juggler]: Unsupported value" in str(api.tried(bad))


@pytest.mark.parametrize(
    "changes",
    [{"apiVersion": "xgboostjob.kubeflow.org/v1"}, {"kind": "MXNetJob"}],
    ids=["old group", "old kind"],
)
def test_old_names_are_asked_about(api, changes):
    job = {**fit("XGBoostJob" if "apiVersion" in changes else "MXJob", "0-old"), **changes}

    assert "metadata.name: Invalid value" in str(api.tried(job))


@pytest.mark.parametrize(
    ("version", "path"),
    [("v1", ""), ("v1alpha2", ""), ("v2beta1", "spec.mpiImplementation"), ("v1alpha1", "apiVersion")],
)
def test_an_mpijob_is_judged_by_the_version_it_is_written_in(api, version, path):
    container = {"name": "mpi", "image": "x"}
    role = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "dialect", "namespace": "default"},
        "spec": {
            "mpiReplicaSpecs": {"Launcher": role, "Worker": role},
            "mpiImplementation": "Nobody's",
            "mainContainer": "mpi",
        },
    }

    refusal = api.tried(job)

    assert [cause["field"] for cause in refusal.details["causes"]] == [path] if path else refusal is None


def test_a_fit_job_is_stored_as_it_was_written(api):
    job = fit("TFJob", "as-written", backoffLimit=3)

    stored = api.create(job)

    assert stored["spec"] == {**job["spec"], "runPolicy": {"backoffLimit": 3, "suspend": False}}


def test_what_a_reconcile_would_advise_is_a_warning(plane, api):
    job = fit("TFJob", "warned")
    job = {**job, "spec": {**job["spec"], "cleanPolicy": "All"}}

    result = kubectl(plane, job, "apply", "--validate=false", "-f", "-")

    assert result.returncode == 0, result.stderr
    assert (
        "Warning: spec.cleanPolicy is not a known field and is ignored; did you mean cleanPodPolicy?" in result.stderr
    )


@pytest.mark.parametrize("kind", ["PyTorchJob", "JAXJob"])
def test_managed_by_stays_as_it_is(api, kind):
    job = fit(kind, f"managed-{kind.lower()}", managedBy="kueue.x-k8s.io/multikueue")
    api.create(job)

    with pytest.raises(Invalid) as refusal:
        api.patch(job, {"spec": {"runPolicy": {"managedBy": "kubeflow.org/training-operator"}}})

    assert "spec.runPolicy.managedBy: Invalid value" in refusal.value.message
    assert 'field is immutable: it was "kueue.x-k8s.io/multikueue"' in refusal.value.message


def test_the_queue_stays_as_it_is(api):
    job = fit("PyTorchJob", "queued", schedulingPolicy={"queue": "day"})
    api.create(job)

    with pytest.raises(Invalid, match="spec.runPolicy.schedulingPolicy.queue is immutable"):
        api.patch(job, {"spec": {"runPolicy": {"schedulingPolicy": {"queue": "night"}}}})

    assert api.get(job)["spec"]["runPolicy"]["schedulingPolicy"] == {"queue": "day"}


def test_a_job_that_was_bad_before_may_be_handled(api):
    job = unfit("broken-kept")

    api.patch(job, {"metadata": {"annotations": {"owner": "somebody"}}})
    api.patch(job, {"spec": {"runPolicy": {"ttlSecondsAfterFinished": 600}}})

    assert api.get(job)["spec"]["runPolicy"]["ttlSecondsAfterFinished"] == 600


def test_a_job_that_was_bad_before_may_be_mended_in_part(api):
    job = unfit("broken-mended")
    template = {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}

    api.patch(job, {"spec": {"pytorchReplicaSpecs": {"Master": {"template": template}}}})

    assert api.get(job)["spec"]["pytorchReplicaSpecs"]["Master"]["replicas"] == 2


def test_a_job_that_was_bad_before_must_not_get_worse(api):
    job = unfit("broken-worse")

    with pytest.raises(Invalid) as refusal:
        api.patch(job, {"spec": {"runPolicy": {"cleanPodPolicy": "Sometimes"}}})

    assert [cause["field"] for cause in refusal.value.details["causes"]] == ["spec.runPolicy.cleanPodPolicy"]


def test_a_bad_job_can_be_deleted(api):
    job = unfit("broken-deleted")

    api.delete(job)

    with pytest.raises(NotFound):
        api.get(job)


def test_the_operators_own_namespace_is_left_alone(api):
    job = unfit("at-home")
    job["metadata"]["namespace"] = NAMESPACE

    assert api.tried(job) is None


@contextlib.contextmanager
def down(replica, api):
    replica.stop()
    try:
        yield
    finally:
        replica.start()
        api.until_asked()


def test_while_the_operator_is_down_jobs_get_in_or_stay_out_as_the_registration_says(replica, api):
    with down(replica, api):
        ignored = api.tried(unfit("unasked"))
        api.registration(failurePolicy="Fail")
        api.until(lambda: api.tried(fit("JAXJob", "kept-out")) is not None, "the new policy")
        failed = api.tried(fit("JAXJob", "kept-out"))
        api.registration(failurePolicy="Ignore")

    assert ignored is None
    assert isinstance(failed, ServerError)
    assert 'failed calling webhook "validate.trainmaster.dev"' in failed.message


def test_an_authority_that_somebody_removed_is_written_again(replica, api):
    service = api.registration()["clientConfig"]["service"]
    api.registration(clientConfig={"service": service})

    with down(replica, api):
        pass

    assert api.registration()["clientConfig"]["caBundle"]


def test_the_rights_that_were_granted_suffice(replica, api):
    """Runs last."""
    assert not [request for code, request in replica.codes if code == 403]
    assert [request for code, request in replica.codes if f"/secrets/{WEBHOOK}" in request]
