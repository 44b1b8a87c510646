"""`trainmaster get`."""

import json
import re

import pytest
import yaml

from trainmaster.cli.get import GetOptions, get
from trainmaster.objects.resource import PODS
from trainmaster.testing.fakeapi import Fault
from trainmaster.testing.operation import passing


def run(stage, *words, beside=None, seconds=3600.0, everywhere=False, namespace="default", **options):
    chosen = GetOptions(words, **options)
    return stage.run(
        "get",
        lambda session: get(session, chosen),
        beside=beside,
        seconds=seconds,
        everywhere=everywhere,
        namespace=namespace,
    )


def test_without_a_kind_jobs_of_all_kinds_are_in_one_table(stage, capsys):
    stage.job("PyTorchJob", "ddp", conditions=stage.conditions(("Running", "it runs")))
    stage.job("JAXJob", "mesh", master=False)

    code = run(stage)

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert lines == [
        ["KIND", "NAME", "STATE", "AGE"],
        ["PyTorchJob", "ddp", "Running", "90s"],
        ["JAXJob", "mesh", "<none>", "90s"],
    ]


def test_wide_adds_ranks_and_message(stage, capsys):
    counts = {"Worker": {"active": 2}, "Master": {"failed": 1}}
    stage.job(conditions=stage.conditions(("Failed", "a rank failed")), replicaStatuses=counts)

    run(stage, output="wide")

    out = capsys.readouterr().out
    assert "2 active, 1 failed" in out
    assert "a rank failed" in out


def test_everywhere_has_the_namespace_in_front(stage, capsys):
    stage.job(name="a", namespace="one")
    stage.job(name="b", namespace="two")

    run(stage, everywhere=True)

    assert re.findall(r"^(\S+) +\S+ +(\S+)", capsys.readouterr().out, re.MULTILINE)[1:] == [("one", "a"), ("two", "b")]


def test_only_jobs_of_the_namespace_are_listed(stage, capsys):
    stage.job(name="a", namespace="one")

    code = run(stage)

    told = capsys.readouterr()
    assert (code, told.out) == (0, "")
    assert told.err == "No training jobs found in namespace default.\n"


def test_a_kind_lists_its_objects_by_any_of_its_names(stage, capsys):
    stage.job()

    for word in ("pytorchjob", "pytorchjobs", "PyTorchJob", "pytorchjobs.kubeflow.org", "pytorchjobs.v1.kubeflow.org"):
        assert run(stage, word) == 0
        assert capsys.readouterr().out.split() == ["NAME", "AGE", "ddp", "90s"]


def test_several_kinds_are_several_tables_with_the_kind_before_the_name(stage, capsys):
    stage.job()
    stage.pod("worker-0")

    run(stage, "po,pytorchjobs")

    out = capsys.readouterr().out
    assert "pod/ddp-worker-0" in out
    assert "\n\nNAME" in out
    assert "pytorchjob.kubeflow.org/ddp" in out


def test_several_names_of_a_kind_are_one_table(stage, capsys):
    stage.pod("worker-0")
    stage.pod("worker-1")

    run(stage, "pods", "ddp-worker-0", "ddp-worker-1")

    assert capsys.readouterr().out.count("NAME") == 1


def test_yaml_of_one_object_is_the_object(stage, capsys):
    stage.job()

    run(stage, "pytorchjob/ddp", output="yaml")

    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["kind"], shown["metadata"]["name"]) == ("PyTorchJob", "ddp")
    assert "managedFields" not in shown["metadata"]


def test_json_of_several_is_a_list_whose_items_say_what_they_are(stage, capsys):
    stage.job(name="a")
    stage.job(name="b")

    run(stage, "pytorchjobs", output="json")

    shown = json.loads(capsys.readouterr().out)
    assert shown["kind"] == "List"
    assert [(item["kind"], item["metadata"]["name"]) for item in shown["items"]] == [
        ("PyTorchJob", "a"),
        ("PyTorchJob", "b"),
    ]


def test_names_can_be_given_back_to_other_verbs(stage, capsys):
    stage.job()

    run(stage, output="name")

    assert capsys.readouterr().out == "pytorchjob.kubeflow.org/ddp\n"


def test_a_selector_chooses(stage, capsys):
    stage.pod("worker-0")
    stage.pod("master-0", leader=True)

    run(stage, "pods", selector="training.kubeflow.org/job-role=master", output="name")

    assert capsys.readouterr().out == "pod/ddp-master-0\n"


def test_a_table_of_the_server_is_shown_as_it_is_with_wide_columns_on_demand(stage, capsys):
    from trainmaster.cli.tables import Printer, Shape

    columns = [{"name": "Name", "priority": 0}, {"name": "Node Name", "priority": 1}]
    row = {"cells": ["a", "n1"], "object": {"metadata": {"name": "a", "labels": {"x": "y"}}}}
    table = {"kind": "Table", "columnDefinitions": columns, "rows": [row]}

    Printer(Shape(), lambda: 0.0).show(table)
    Printer(Shape(wide=True, with_labels=True), lambda: 0.0).show(table)
    Printer(Shape(headers=False), lambda: 0.0).show(table)

    assert capsys.readouterr().out == "NAME\na\nNAME   NODE NAME   LABELS\na      n1          x=y\na\n"


def test_what_is_not_there_ends_with_1_and_is_named(stage, capsys):
    code = run(stage, "pytorchjob/none")

    told = capsys.readouterr().err
    assert code == 1
    assert "none" in told
    assert "not found" in told


@pytest.mark.parametrize("output", ["", "yaml", "name"])
@pytest.mark.parametrize("word", ["pytorchjob/none", "none"])
def test_what_is_not_there_is_fine_if_one_says_so(stage, capsys, word, output):
    code = run(stage, word, ignore_not_found=True, output=output)

    assert (code, *capsys.readouterr()) == (0, "", "")


def test_what_is_there_is_shown_although_another_is_not(stage, capsys):
    stage.job()

    code = run(stage, "none", "ddp", ignore_not_found=True, output="name")

    assert (code, capsys.readouterr().out) == (0, "pytorchjob.kubeflow.org/ddp\n")


def test_a_watch_goes_on_below_the_table(stage, capsys):
    stage.job(conditions=stage.conditions(("Created", "")))

    async def change():
        await passing(5)
        stage.job(conditions=stage.conditions(("Succeeded", "")))

    code = run(stage, watch=True, beside=change, seconds=60)

    states = [line.split()[2] for line in capsys.readouterr().out.splitlines()]
    assert code is None
    assert states == ["STATE", "Created", "Succeeded"]


def test_a_watch_of_one_object_in_yaml_is_documents(stage, capsys):
    stage.pod("worker-0")
    stage.pod("worker-1")

    async def change():
        await passing(5)
        stage.api.set_pod_phase("default", "ddp-worker-0", "Succeeded")
        stage.api.set_pod_phase("default", "ddp-worker-1", "Succeeded")

    run(stage, "pod/ddp-worker-0", watch=True, output="yaml", beside=change, seconds=60)

    phases = [one["status"]["phase"] for one in yaml.safe_load_all(capsys.readouterr().out)]
    assert phases == ["Running", "Succeeded"]


def test_a_watch_survives_its_end_and_a_gap_in_history(stage, capsys):
    stage.pod("worker-0")

    async def change():
        await passing(5)
        stage.api.drop_watches()
        await passing(1000)
        stage.api.set_pod_phase("default", "ddp-worker-0", "Succeeded")
        await passing(5)
        stage.api.compact()
        stage.api.drop_watches()

    run(stage, "pods", watch=True, output="name", beside=change, seconds=2000)

    assert set(capsys.readouterr().out.split()) == {"pod/ddp-worker-0"}


def test_a_misspelt_kind_is_told_with_the_known_ones(stage, capsys):
    code = run(stage, "pytorchjob/a", "pytorch/b")

    assert code == 2
    assert "serves no pytorch" in capsys.readouterr().err


def test_a_selector_beside_a_name_is_misuse(stage):
    assert run(stage, "pytorchjob/a", selector="x=y") == 2


def test_fields_are_left_to_the_server(stage, capsys):
    stage.pod("worker-0")
    stage.api.set_pod_phase("default", "ddp-worker-0", "Failed")
    stage.pod("worker-1")

    run(stage, "pods", field_selector="status.phase=Failed", output="name")

    assert capsys.readouterr().out == "pod/ddp-worker-0\n"
    assert PODS.path("default") in [path for _, path in stage.api.requests]


def test_kinds_that_one_may_not_list_are_left_out_with_a_warning(stage, capsys):
    stage.job()
    stage.api.fail_next("GET */tfjobs", Fault(403, message="tfjobs is forbidden"))

    code = run(stage, output="")

    told = capsys.readouterr()
    assert code == 0
    assert "warning: tfjobs is forbidden" in told.err
    assert "ddp" in told.out


def test_a_watch_that_begins_with_nothing_has_a_header_with_its_first_row(stage, capsys):
    async def change():
        await passing(5)
        stage.pod("worker-0")

    run(stage, "pods", watch=True, beside=change, seconds=60)

    assert capsys.readouterr().out.split() == ["NAME", "AGE", "ddp-worker-0", "90s"]
