"""What newcomers stumble over is recognised, and nothing else."""

import pytest

from trainmaster.cli import hints, kinds
from trainmaster.cli.documents import Document
from trainmaster.cli.hints import Place

HERE = Place("x:1")


def text_of(hint):
    assert hint is not None
    return hint.text


def is_final(hint):
    assert hint is not None
    return hint.is_final


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "has no module torch"),
        ("ModuleNotFoundError: No module named 'a.b'", "has no module a.b"),
        ("/venv/bin/python3.11: No module named torch.distributed.run", "has no module torch.distributed.run"),
        (
            "/usr/bin/python: Error while finding module specification for 'paddle.distributed.launch' "
            "(ModuleNotFoundError: No module named 'paddle')",
            "has no module paddle",
        ),
        ("[rank1]: ModuleNotFoundError: No module named 'torch'", "has no module torch"),
        ("[1,0]<stderr>:ModuleNotFoundError: No module named 'horovod'", "has no module horovod"),
        ("python: can't open file '/app/train.py': [Errno 2] No such file or directory", 'files: {"/app": DIRECTORY}'),
        ("python: can't open file '/train.py': [Errno 2] No such file or directory", "there is no train.py in /,"),
        ("sh: 1: horovodrun: not found", "there is no horovodrun in what stands for x:1"),
        ("bash: line 1: mpirun: command not found", "there is no mpirun in what stands for x:1"),
        ("/bin/sh: 3: mpirun: not found", "there is no mpirun in what stands for x:1"),
    ],
    ids=[
        "module",
        "inner module",
        "-m",
        "-m of a package",
        "of torch",
        "of mpirun",
        "file",
        "file at the top",
        "sh",
        "bash",
        "sh by path",
    ],
)
def test_a_line_that_says_what_is_missing_gives_a_hint_that_is_final(line, words):
    hint = hints.of_line(line, HERE)

    assert words in text_of(hint)
    assert is_final(hint)


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 98] Address already in use",
        "The server socket has failed to bind to 0.0.0.0:23456 (errno: 98 - Address already in use).",
        "RuntimeError: server socket: EADDRINUSE",
    ],
    ids=["Python", "torch", "code"],
)
def test_a_port_that_is_taken_may_be_free_the_next_time(line):
    assert hints.of_line(line, HERE) == hints.Hint(hints.PORT, is_final=False)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "step 3",
        "I caught ModuleNotFoundError: No module named 'x'",
        "WARNING: ModuleNotFoundError: No module named 'x'",
        "python: No module named train.__main__; 'train' is a package and cannot be directly executed",
        "can't open file '/a': Permission denied",
        "the name was not found",
        "sh: a and b: not found together",
    ],
    ids=["empty", "ordinary", "quoted", "logged", "no program", "other cause", "prose", "more prose"],
)
def test_other_lines_give_none(line):
    assert hints.of_line(line, HERE) is None


def test_a_file_that_a_mapped_directory_lacks_is_named_where_it_would_lie(tmp_path):
    place = Place("x:1", {"/app": tmp_path, "/app/data": tmp_path / "else"})
    line = "python: can't open file '/app/sub/train.py': [Errno 2] No such file or directory"

    hint = hints.of_line(line, place)

    assert text_of(hint).startswith(f"{tmp_path}/sub/train.py, which is /app/sub/train.py in the pods, does not exist")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ("needs 1 nvidia.com/gpu, 0 of 0 free (requested by r-0)", "node: {resources: {nvidia.com/gpu: NUMBER}}"),
        ("group g needs 4 pods (8 cpu) together; the cluster has 2 cpu in all", "node: {resources: {NAME: NUMBER}}"),
        ("no label accelerator=p100 as nodeSelector wants", 'node: {labels: {accelerator: "p100"}}'),
        ("no label gpu=yes as nodeSelector wants", 'node: {labels: {gpu: "yes"}}'),
        ("PersistentVolumeClaim data does not exist (requested by r-0)", "put the PersistentVolumeClaim data into"),
    ],
    ids=["resource", "gang", "label", "label that YAML takes for another type", "claim"],
)
def test_a_pod_without_a_node_gives_the_line_that_would_find_it_one(message, words):
    assert words in text_of(hints.of_warning("FailedScheduling", message, HERE))


def test_a_program_that_is_nowhere_is_final():
    message = 'Error: cannot start the container\'s command: exec: "torchrun": executable file not found in $PATH'

    hint = hints.of_warning("Failed", message, HERE)

    assert "there is no torchrun in what stands for x:1" in text_of(hint)
    assert is_final(hint)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("python train.py", "executable file not found in $PATH"),
        ("/app/train.py --lr 1", "No such file or directory"),
        ("/app/train.py --lr 1", "stat /app/train.py --lr 1: no such file or directory: unknown"),
    ],
    ids=["looked up", "by path", "in the words of other runtimes"],
)
@pytest.mark.parametrize("place", [HERE, Place(is_here=False)], ids=["here", "there"])
def test_a_command_in_one_word_is_told_to_be_taken_apart(command, why, place):
    hint = hints.of_warning("Failed", f'Error: cannot start: exec: "{command}": {why}', place)

    items = ", ".join(f'"{word}"' for word in command.split())
    assert f"command: [{items}]" in text_of(hint)
    assert "Name an environment" not in text_of(hint)
    assert is_final(hint)


@pytest.mark.parametrize(("is_limited", "given"), [(False, hints.RESTARTED), (True, None)])
def test_restarts_without_end_are_told_of_unless_the_manifest_limits_them(is_limited, given):
    assert hints.of_warning("BackOff", "Back-off restarting", Place(is_limited=is_limited)) == given


def test_on_anothers_cluster_only_what_holds_there_is_hinted_at():
    there = Place(is_here=False)

    assert hints.of_line("ModuleNotFoundError: No module named 'torch'", there) is None
    assert hints.of_warning("FailedScheduling", "needs 1 cpu, 0 free", there) is None
    assert hints.of_warning("BackOff", "Back-off restarting", there) is not None


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("FailedMount", "no claim named x"),
        ("FailedScheduling", "0/1 nodes are available: node affinity does not match"),
        ("FailedScheduling", "PersistentVolumeClaim data is not bound yet"),
        ("FailedScheduling", "group g needs 4 pods together; 2 exist"),
    ],
    ids=["mount", "affinity", "claim", "gang"],
)
def test_warnings_that_explain_themselves_give_none(reason, message):
    assert hints.of_warning(reason, message, HERE) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ModuleNotFoundError: No module named 'torch'", "The image of worker-1 has no Python module torch"),
        ("python: can't open file '/a/b.py': [Errno 2] No such file or directory", "has no file /a/b.py"),
        ("sh: 1: mpirun: not found", "has no program mpirun"),
        ("OSError: [Errno 98] Address already in use", "In worker-1, another process has that port"),
    ],
    ids=["module", "file", "program", "port"],
)
def test_a_log_read_later_gives_advice_that_holds_on_any_cluster(line, words):
    assert words in hints.of_log(["starting", line, "bye"], "worker-1")


def test_a_log_that_says_nothing_of_the_kind_gives_none():
    assert hints.of_log(["starting", "bye"], "worker-1") == ""


@pytest.mark.parametrize(
    ("spec", "is_limited"),
    [({"runPolicy": {"backoffLimit": 0}}, True), ({"backoffLimit": 2}, True), ({"runPolicy": {}}, False)],
    ids=["zero", "flat", "none"],
)
def test_a_limit_of_restarts_is_found_where_it_may_stand(spec, is_limited):
    assert hints.limits_restarts({"spec": spec}) is is_limited


@pytest.mark.parametrize(("version", "is_limited"), [("v2beta1", True), ("v1", False)])
def test_a_launcher_that_a_kubernetes_job_starts_is_limited_by_it(version, is_limited):
    body = {"apiVersion": f"kubeflow.org/{version}", "kind": "MPIJob", "metadata": {"name": "pi"}, "spec": {}}

    assert hints.limits_restarts(body) is is_limited


@pytest.mark.parametrize(
    ("images", "named"),
    [(["a", "a"], "a"), (["a", "b"], "IMAGE"), ([], "IMAGE")],
    ids=["one", "several", "none"],
)
def test_an_image_is_named_where_there_is_but_one(images, named):
    body = {"spec": {"containers": [{"name": "c", "image": image} for image in images]}}

    assert hints.image_of(body) == named


def a_document(api_version, kind):
    return Document("f.yaml", {"apiVersion": api_version, "kind": kind, "metadata": {"name": "j"}})


@pytest.mark.parametrize(
    ("api_version", "kind", "meant"),
    [
        ("kubeflow.org/v1", "PytorchJob", "did you mean kubeflow.org/v1 PyTorchJob?"),
        ("kubeflow.org/v1", "PYTORCHJOB", "did you mean kubeflow.org/v1 PyTorchJob?"),
        ("kubeflow.org/v1", "PyTorchJobs", "did you mean kubeflow.org/v1 PyTorchJob?"),
        ("kubeflow.org/v1", "TFjob", "did you mean kubeflow.org/v1 TFJob?"),
        ("kubeflow.org/v1", "mpijob", "did you mean kubeflow.org/v1 MPIJob?"),
        ("kubeflow.org/v2", "TFJob", "did you mean kubeflow.org/v1 TFJob?"),
        ("kubeflow.org/v2beta", "MPIJob", "did you mean kubeflow.org/v2beta1 MPIJob?"),
        ("ray.io/v1", "RayJob", "known are:"),
    ],
    ids=["case", "large", "plural", "mixed", "small", "version", "one letter", "foreign"],
)
def test_a_kind_that_nobody_runs_is_told_with_what_was_meant(api_version, kind, meant):
    assert meant in kinds.unknown(a_document(api_version, kind))


@pytest.mark.parametrize("kind", ["PyTorchJob", "MXJob", "MPIJob"])
def test_for_a_kind_that_is_spelt_right_no_other_is_proposed(kind):
    assert kinds.meant("kubeflow.org/v1", kind) == ""


def test_a_version_that_has_been_retired_is_not_proposed():
    assert "v1alpha1" not in kinds.unknown(a_document("ray.io/v1", "RayJob"))


@pytest.mark.parametrize(
    ("api_version", "kind", "is_suspect"),
    [
        ("kubeflow.org/v1", "PytorchJob", True),
        ("kubeflow.org/v1", "pytorchjob", True),
        ("kubeflow.org/v1", "PyTorchJobs", True),
        ("kubeflow.org/v1", "PyTorchJbo", True),
        ("ray.io/v1", "RayJob", True),
        ("batch/v1", "Job", False),
        ("batch/v1beta1", "CronJob", False),
        ("v1", "Service", False),
        ("kubeflow.org/v1", "Notebook", False),
    ],
    ids=["misspelt", "small", "plural", "swapped", "foreign", "of Kubernetes", "older", "other", "of the same group"],
)
def test_only_what_looks_like_a_job_is_suspect(api_version, kind, is_suspect):
    assert kinds.looks_like_a_job(a_document(api_version, kind)) is is_suspect
