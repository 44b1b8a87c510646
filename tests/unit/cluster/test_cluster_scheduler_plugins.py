"""Groups of scheduler-plugins: they start when what they demand as a whole is free, whatever their pods ask for."""

from __future__ import annotations

from typing import Any

from trainmaster.cluster.scheduling.scheduler_gang import PLUGINS
from trainmaster.testing.scheduling import Books, a_group, a_node, a_pod


def members(count: int) -> list[dict[str, Any]]:
    return [a_pod(f"p{index}", label_group="train", cpu="1") for index in range(count)]


def demanding(cpu: str) -> dict[str, Any]:
    return a_group(api_group=PLUGINS, minMember=2, minResources={"cpu": cpu})


def test_a_group_that_demands_more_than_there_is_waits_and_keeps_nobody_else_waiting():
    books = Books(a_node(cpu="4"), demanding("100000"), *members(2), a_pod("other", cpu="1"))

    books.settle()

    assert books.placed() == {"other": "node"}
    assert books.why("p0") == "group train needs 2 pods (100000 cpu) together; the cluster has 4 cpu in all"


def test_a_group_that_demands_more_than_is_free_starts_when_it_is_free():
    taken = a_pod("other", cpu="1")
    taken = {**taken, "spec": {**taken["spec"], "nodeName": "node"}, "status": {"phase": "Running"}}
    books = Books(a_node(cpu="4"), taken, demanding("4"), *members(2))

    books.settle()
    before, why = books.placed(), books.why("p0")
    books.end_pod("other")
    books.settle()

    assert (set(before) & {"p0", "p1"}, why) == (
        set(),
        "group train needs 2 pods (4 cpu) together; 3 cpu free, 1 more needed",
    )
    assert books.placed().items() >= {"p0": "node", "p1": "node"}.items()


def test_a_lost_member_is_replaced_beside_those_that_hold_what_was_demanded():
    first, second, third = members(3)
    held = {**first, "spec": {**first["spec"], "nodeName": "node"}, "status": {"phase": "Running"}}
    books = Books(a_node(cpu="3"), a_group(api_group=PLUGINS, minMember=3, minResources={"cpu": "3"}), held)

    books.add(second, third)
    books.settle()

    assert books.placed().items() >= {"p1": "node", "p2": "node"}.items()
