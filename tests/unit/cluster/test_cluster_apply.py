from __future__ import annotations

from typing import Any

import pytest

from trainmaster.cluster.registry import fieldset, managed_fields
from trainmaster.cluster.registry.apply import applied_to, read_yaml
from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.kinds_builtin import BUILTIN
from trainmaster.cluster.registry.status_error import ApiError
from trainmaster.objects.meta import mutable

CONFIG_MAPS = next(kind for kind in BUILTIN if kind.plural == "configmaps")
PODS = next(kind for kind in BUILTIN if kind.plural == "pods")


def a_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": data}


def a_pod(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": list(containers)}}


def applied(kind: Kind, live: Any, wanted: Any, manager: str, **options: Any) -> dict[str, Any]:
    start = live if live is not None else {**wanted, "metadata": {"name": "x"}, "data": {}, "spec": {}}
    return applied_to(kind, mutable(start), mutable(wanted), manager, 0.0, **options)


def owned(obj: dict[str, Any]) -> dict[str, list[str]]:
    entries = obj["metadata"].get("managedFields") or []
    return {entry["manager"]: list(fieldset.paths(entry["fieldsV1"])) for entry in entries}


def test_appliers_own_what_they_state() -> None:
    first = applied(CONFIG_MAPS, None, a_map(a="1"), "one")
    both = applied(CONFIG_MAPS, first, a_map(b="2"), "two")

    assert both["data"] == {"a": "1", "b": "2"}
    assert owned(both) == {"one": [".data.a"], "two": [".data.b"]}


def test_the_same_value_is_shared_without_conflict() -> None:
    first = applied(CONFIG_MAPS, None, a_map(a="1"), "one")
    both = applied(CONFIG_MAPS, first, a_map(a="1"), "two")

    assert owned(both) == {"one": [".data.a"], "two": [".data.a"]}


def test_another_value_for_anothers_field_is_a_conflict_that_names_it() -> None:
    live = applied(CONFIG_MAPS, None, a_map(a="1", b="2"), "one")

    with pytest.raises(ApiError) as refused:
        applied(CONFIG_MAPS, live, a_map(a="x", b="y"), "two")

    assert refused.value.body() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\n- .data.b',
        "reason": "Conflict",
        "details": {
            "causes": [
                {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.a"},
                {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.b"},
            ]
        },
        "code": 409,
    }


def test_a_conflict_with_a_plain_writer_says_with_which_version() -> None:
    live = a_map(a="1")
    managed_fields.track_created(CONFIG_MAPS, live, "kubectl-create", now=0.0)

    with pytest.raises(ApiError) as refused:
        applied(CONFIG_MAPS, live, a_map(a="2"), "me")

    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "kubectl-create" using v1: .data.a'


def test_force_takes_the_field() -> None:
    live = applied(CONFIG_MAPS, None, a_map(a="1", b="2"), "one")

    taken = applied(CONFIG_MAPS, live, a_map(a="x"), "two", force=True)

    assert taken["data"] == {"a": "x", "b": "2"}
    assert owned(taken) == {"one": [".data.b"], "two": [".data.a"]}


def test_what_an_applier_no_longer_states_goes_unless_another_states_it() -> None:
    live = applied(CONFIG_MAPS, None, a_map(a="1", b="2", c="3"), "one")
    live = applied(CONFIG_MAPS, live, a_map(b="2"), "two")

    less = applied(CONFIG_MAPS, live, a_map(a="1"), "one")

    assert less["data"] == {"a": "1", "b": "2"}
    assert owned(less) == {"one": [".data.a"], "two": [".data.b"]}


def test_a_dropped_list_item_goes_with_the_defaults_in_it() -> None:
    wanted = a_pod({"name": "a", "image": "x"}, {"name": "b", "image": "y"})
    live = applied(PODS, None, wanted, "one")
    live["spec"]["containers"][1]["imagePullPolicy"] = "Always"

    less = applied(PODS, live, a_pod({"name": "a", "image": "x"}), "one")

    assert [each["name"] for each in less["spec"]["containers"]] == ["a"]


def test_a_dropped_list_item_stays_for_another_who_owns_a_field_in_it() -> None:
    live = applied(PODS, None, a_pod({"name": "a", "image": "x", "tty": True}), "one")
    live = applied(PODS, live, a_pod({"name": "a", "image": "x"}), "two")

    less = applied(PODS, live, a_pod(), "one")

    assert less["spec"]["containers"] == [{"name": "a", "image": "x"}]


def test_items_of_keyed_lists_are_owned_one_by_one() -> None:
    live = applied(PODS, None, a_pod({"name": "a", "image": "x"}), "one")

    both = applied(PODS, live, a_pod({"name": "b", "image": "y", "ports": [{"containerPort": 80}]}), "two")

    assert [each["name"] for each in both["spec"]["containers"]] == ["a", "b"]
    assert owned(both)["two"] == [
        '.spec.containers[name="b"]',
        '.spec.containers[name="b"].image',
        '.spec.containers[name="b"].name',
        '.spec.containers[name="b"].ports[containerPort=80,protocol="TCP"]',
        '.spec.containers[name="b"].ports[containerPort=80,protocol="TCP"].containerPort',
    ]


def test_applying_the_same_again_changes_nothing() -> None:
    live = applied(CONFIG_MAPS, None, a_map(a="1"), "one")

    assert applied(CONFIG_MAPS, live, a_map(a="1"), "one") == live


def test_a_plain_write_takes_the_fields_it_changes() -> None:
    live = applied(CONFIG_MAPS, None, a_map(a="1", b="2"), "one")
    new = {**mutable(live), "data": {"a": "9", "c": "3"}}

    managed_fields.track(CONFIG_MAPS, new, live, "writer", now=0.0)

    assert owned(new) == {"writer": [".data.a", ".data.c"]}


def test_an_internal_write_only_voids_ownership_of_what_it_removes() -> None:
    live = applied(CONFIG_MAPS, None, a_map(a="1", b="2"), "one")
    new = {**mutable(live), "data": {"a": "9"}}

    managed_fields.track(CONFIG_MAPS, new, live, "", now=0.0)

    assert owned(new) == {"one": [".data.a"]}


def test_many_writers_are_folded_into_one() -> None:
    live = a_map()
    managed_fields.track_created(CONFIG_MAPS, live, "w0", now=0.0)
    for number in range(1, 20):
        new = {**mutable(live), "data": {**live["data"], f"k{number:02}": "v"}}
        managed_fields.track(CONFIG_MAPS, new, live, f"w{number}", now=float(number))
        live = new

    entries = live["metadata"]["managedFields"]

    assert len(entries) == 10
    assert entries[0]["manager"] == "ancient-changes"
    assert sum(len(paths) for paths in owned(live).values()) >= 19


def test_yaml_is_read_as_json_would_be() -> None:
    assert read_yaml(b"a: 2020-01-01\nb: [1, true]") == {"a": "2020-01-01", "b": [1, True]}


@pytest.mark.parametrize("body", [b"{bad", b"- a", b"", b"\xff", b"!!python/object:os.system x"])
def test_what_is_no_yaml_object_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(ApiError) as refused:
        read_yaml(body)

    assert refused.value.status == 400
