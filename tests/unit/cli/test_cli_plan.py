"""`trainmaster plan` and `manifests`, as a user sees them."""

import io
import json

import pytest
import yaml
from typer.testing import CliRunner

from trainmaster.cli import documents, plan
from trainmaster.cli.app import app
from trainmaster.testing.scene import a_job


def trainmaster(*arguments, stdin=None):
    return CliRunner().invoke(app, list(arguments), input=stdin)


@pytest.fixture
def job(tmp_path):
    manifest = a_job("PyTorchJob", "ddp").role("Master").role("Worker", 2).manifest
    del manifest["metadata"]["uid"]
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(manifest))
    return path


def test_plan_prints_one_list_in_creation_order(job):
    result = trainmaster("plan", str(job))

    listed = yaml.safe_load(result.stdout)
    names = [(item["kind"], item["metadata"]["name"]) for item in listed["items"]]
    replicas = ["ddp-master-0", "ddp-worker-0", "ddp-worker-1"]
    assert result.exit_code == 0
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert names == [("Service", name) for name in replicas] + [("Pod", name) for name in replicas]


def test_what_is_printed_owns_itself_so_that_it_can_be_applied(job):
    result = trainmaster("plan", str(job))

    assert "ownerReferences" not in result.stdout


def test_plan_prints_json(job):
    result = trainmaster("plan", str(job), "-o", "json")

    assert len(json.loads(result.stdout)["items"]) == 6


def test_plan_prints_a_table(job):
    result = trainmaster("plan", str(job), "-o", "table")

    assert "KIND" in result.stdout
    assert "ddp-worker-1" in result.stdout


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_each_object_is_printed_before_the_next_is_built(job, output):
    built = []

    def items():
        for number in range(3):
            built.append(number)
            yield {"kind": "Pod", "metadata": {"name": f"pod-{number}"}}

    printed = [(text, len(built)) for text in plan.listed(items(), output)]

    assert [count for text, count in printed if "pod-" in text] == [1, 2, 3]
    assert [text.count("pod-") for text, _ in printed if "pod-" in text] == [1, 1, 1]


def test_nothing_is_printed_where_a_later_file_has_a_mistake(job, tmp_path):
    bad = tmp_path / "z.yaml"
    bad.write_text(yaml.safe_dump(a_job("PyTorchJob", "bad").role("Wroker").manifest))

    result = trainmaster("plan", str(job), str(bad))

    assert result.exit_code == 2
    assert not result.stdout


def test_a_job_that_is_too_large_is_refused_with_the_limit(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_text(yaml.safe_dump(a_job("TFJob", "large").role("Worker", 10_000).manifest))

    result = trainmaster("plan", str(path))

    assert result.exit_code == 2
    assert not result.stdout
    assert "131072 bytes that Linux allows for one environment variable" in result.stderr


def test_plan_reads_stdin(job):
    result = trainmaster("plan", "-", stdin=job.read_text())

    assert result.exit_code == 0


def test_a_job_without_a_namespace_is_planned_in_the_one_given(job):
    result = trainmaster("plan", "-", "-n", "team", stdin=job.read_text().replace("namespace: default", "x: y"))

    assert {item["metadata"]["namespace"] for item in yaml.safe_load(result.stdout)["items"]} == {"team"}


def test_a_name_that_the_cluster_makes_is_planned_with_one_that_stands_in_for_it(job):
    given = {**yaml.safe_load(job.read_text()), "metadata": {"generateName": "ddp-"}}

    result = trainmaster("plan", "-", stdin=yaml.safe_dump(given))

    names = {item["metadata"]["name"] for item in yaml.safe_load(result.stdout)["items"]}
    assert names == {"ddp-xxxxx-master-0", "ddp-xxxxx-worker-0", "ddp-xxxxx-worker-1"}
    assert "PyTorchJob ddp-xxxxx: the cluster makes its name; xxxxx stands for the end of it" in result.stderr


def test_a_name_wins_over_a_prefix(job):
    given = yaml.safe_load(job.read_text())
    given["metadata"]["generateName"] = "other-"

    result = trainmaster("plan", "-", stdin=yaml.safe_dump(given))

    assert "ddp-master-0" in result.stdout
    assert not result.stderr


def test_a_long_prefix_is_cut_as_the_server_cuts_it():
    body = {"kind": "PyTorchJob", "metadata": {"generateName": "d" * 70}}

    assert documents.Document("all.yaml", body).named["metadata"]["name"] == "d" * 58 + "xxxxx"


def test_every_problem_of_a_bad_job_is_printed_with_its_file(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(yaml.safe_dump(a_job("PyTorchJob", "Bad").role("Master", 2).role("Wroker").manifest))

    result = trainmaster("plan", str(path))

    assert result.exit_code == 2
    assert not result.stdout
    for part in (str(path), "metadata.name", "[Master].replicas: Forbidden: must be 1", "[Wroker]"):
        assert part in result.stderr


def test_objects_that_are_no_jobs_are_passed_over(job):
    claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\n---\n"

    result = trainmaster("plan", "-", stdin=claim + job.read_text())

    assert result.exit_code == 0
    assert "PersistentVolumeClaim data: passed over" in result.stderr


def test_an_unknown_kind_of_job_is_an_error_that_lists_the_known_ones():
    result = trainmaster("plan", "-", stdin="apiVersion: kubeflow.org/v1\nkind: TFJobb\nmetadata: {name: x}\n")
    other = trainmaster("plan", "-", stdin="apiVersion: example.org/v1\nkind: FooJob\nmetadata: {name: x}\n")

    assert result.exit_code == other.exit_code == 2
    assert "kubeflow.org/v1 TFJob" in other.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("a: [", "not valid YAML", id="broken YAML"),
        pytest.param("a: &a [*a]", "line 1, column 8: not valid YAML: anchor 'a': the doc", id="YAML within itself"),
        pytest.param("[" * 3000, "not valid YAML: exceeded max depth", id="deep YAML"),
        pytest.param(r'a: "\ud800"', "not valid YAML: found invalid Unicode character escape code", id="surrogate"),
        pytest.param("just text", "it needs apiVersion and kind", id="no object"),
        pytest.param("", "nothing to plan", id="nothing"),
    ],
)
def test_bad_input_is_told_in_words(text, said):
    result = trainmaster("plan", "-", stdin=text)

    assert result.exit_code == 2
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_dates_and_numbers_as_keys_are_texts_as_for_kubectl(job):
    text = job.read_text().replace("name: ddp\n", "name: ddp\n  annotations: {day: 2026-01-01, 7: x}\n")

    (document,) = documents.read(["-"], io.StringIO(text))

    assert document.body["metadata"]["annotations"] == {"day": "2026-01-01", "7": "x"}


def test_a_missing_file_is_named(tmp_path):
    result = trainmaster("plan", str(tmp_path / "none.yaml"))

    assert result.exit_code == 2
    assert "none.yaml: no such file" in result.stderr


def test_a_directory_is_read_file_by_file_and_lists_are_opened(tmp_path, job):
    first = yaml.safe_load(job.read_text())
    (tmp_path / "list.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [first]}))

    found = list(documents.read([str(tmp_path)], io.StringIO()))

    assert [document.body["kind"] for document in found] == ["PyTorchJob", "PyTorchJob"]


def test_settings_reach_the_plan(job):
    result = trainmaster(
        "plan", str(job), "--compat", "2021", "--init-container", "never", "--gang-scheduler-name", "volcano"
    )

    items = yaml.safe_load(result.stdout)["items"]
    pods = {item["metadata"]["name"]: item for item in items if item["kind"] == "Pod"}
    env = {e["name"]: e["value"] for e in pods["ddp-master-0"]["spec"]["containers"][0]["env"]}
    assert items[0]["kind"] == "PodGroup"
    assert env["MASTER_ADDR"] == "localhost"
    assert "initContainers" not in pods["ddp-worker-0"]["spec"]


def test_manifests_are_what_kubectl_applies():
    result = trainmaster("manifests", "--namespace", "train", "--image", "example/tm:9")

    objects = list(yaml.safe_load_all(result.stdout))
    kinds = [item["kind"] for item in objects]
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    assert kinds[0] == "Namespace"
    assert {"CustomResourceDefinition", "ServiceAccount", "ClusterRole", "Role", "Service"} <= set(kinds)
    assert deployment["metadata"]["namespace"] == "train"
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "example/tm:9"


def test_manifests_shrink_with_the_schemes():
    few = trainmaster("manifests", "--enable-scheme", "JaxJob")

    crds = [d["metadata"]["name"] for d in yaml.safe_load_all(few.stdout) if d["kind"] == "CustomResourceDefinition"]
    assert crds == ["jaxjobs.kubeflow.org"]


def test_an_unknown_scheme_is_refused():
    result = trainmaster("manifests", "--enable-scheme", "dummyjob")

    assert result.exit_code == 2
    assert "unknown scheme dummyjob; known are TFJob" in result.stderr


def test_the_version_is_printed():
    assert trainmaster("--version").stdout.startswith("trainmaster 0.")
