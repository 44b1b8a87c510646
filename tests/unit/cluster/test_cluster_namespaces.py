from __future__ import annotations

from typing import Any

from trainmaster.cluster.controllers.namespaces import NamespaceKeeper, conditions_of, with_conditions
from trainmaster.testing import stage
from trainmaster.testing.stage import Stage

NAMESPACES, MAPS, PODS = "v1/namespaces", "v1/configmaps", "v1/pods"


def play(scene: Any) -> None:
    stage.play(scene, lambda registry, now: [NamespaceKeeper(registry, ca="PEM", now=now)])


def a_map(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "lab", **metadata}}


def condition(namespace: dict[str, Any], type_: str) -> dict[str, Any]:
    conditions = namespace.get("status", {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == type_), {})


def test_a_new_namespace_has_an_account_and_the_root_certificate() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(NAMESPACES, {"metadata": {"name": "lab"}})

        ca = await stage.until(lambda: stage.get(MAPS, "lab/kube-root-ca.crt"))

        assert ca["data"] == {"ca.crt": "PEM"}
        await stage.until(lambda: stage.get("v1/serviceaccounts", "lab/default"))
        await stage.until(lambda: stage.get(MAPS, "default/kube-root-ca.crt"))

    play(scene)


def test_what_every_namespace_has_comes_back_when_deleted_and_is_repaired_when_changed_before_the_start() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until(lambda: stage.get(MAPS, "default/kube-root-ca.crt"))

        await stage.delete(MAPS, "default/kube-root-ca.crt")
        await stage.delete("v1/serviceaccounts", "default/default")

        await stage.until(lambda: stage.get(MAPS, "default/kube-root-ca.crt"))
        await stage.until(lambda: stage.get("v1/serviceaccounts", "default/default"))

    play(scene)


def test_a_certificate_of_an_earlier_run_is_replaced() -> None:
    async def scene(stage: Stage) -> None:
        await stage.until(lambda: (stage.get(MAPS, "default/kube-root-ca.crt") or {}).get("data") == {"ca.crt": "PEM"})

    async def earlier(stage: Stage) -> None:
        await stage.create(MAPS, {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "OLD"}})
        keeper = NamespaceKeeper(stage.registry, ca="PEM", now=stage.now)
        await keeper._supply("default")
        await scene(stage)

    stage.play(earlier, lambda registry, now: [])


def test_a_deleted_namespace_is_emptied_and_goes() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(NAMESPACES, {"metadata": {"name": "lab"}})
        await stage.create(MAPS, a_map("a"))
        await stage.create("v1/secrets", a_map("b"))
        await stage.create("coordination.k8s.io/v1/leases", a_map("c"))
        await stage.create(MAPS, {"metadata": {"name": "kept", "namespace": "default"}})

        await stage.delete(NAMESPACES, "lab")

        await stage.until(lambda: "lab" not in stage.names(NAMESPACES))
        assert stage.names(MAPS, "lab") == []
        assert "kept" in stage.names(MAPS, "default")

    play(scene)


def test_a_namespace_waits_for_finalizers_and_says_so() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(NAMESPACES, {"metadata": {"name": "lab"}})
        await stage.create(MAPS, a_map("held", finalizers=["example.org/busy"]))

        await stage.delete(NAMESPACES, "lab")

        def problem() -> dict[str, Any]:
            return condition(stage.get(NAMESPACES, "lab") or {}, "NamespaceFinalizersRemaining")

        told = await stage.until(problem)
        assert (told["status"], told["reason"]) == ("True", "SomeFinalizersRemain")
        assert "example.org/busy in 1 resource instances" in told["message"]
        await stage.passes(3600)
        namespace = stage.get(NAMESPACES, "lab")
        assert namespace is not None
        assert namespace["status"]["phase"] == "Terminating"
        remaining = condition(namespace, "NamespaceContentRemaining")["message"]
        assert remaining == "Some resources are remaining: configmaps has 1 resource instances"

        await stage.change(MAPS, "lab/held", metadata={"finalizers": []})

        await stage.until(lambda: "lab" not in stage.names(NAMESPACES))

    play(scene)


def test_a_namespace_waits_for_its_pods_to_end() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(NAMESPACES, {"metadata": {"name": "lab"}})
        pod = {**a_map("p"), "spec": {"containers": [{"name": "c", "image": "i"}], "nodeName": "machine"}}
        await stage.create(PODS, pod)

        await stage.delete(NAMESPACES, "lab")

        await stage.until(lambda: "deletionTimestamp" in (stage.get(PODS, "lab/p") or {})["metadata"])
        await stage.passes(60)
        assert "lab" in stage.names(NAMESPACES)

        await stage.delete(PODS, "lab/p", gracePeriodSeconds=0)

        await stage.until(lambda: "lab" not in stage.names(NAMESPACES))

    play(scene)


def test_a_namespace_that_was_terminating_before_the_start_is_emptied() -> None:
    async def scene(stage: Stage) -> None:
        await stage.create(NAMESPACES, {"metadata": {"name": "lab"}})
        await stage.create(MAPS, a_map("a"))
        await stage.delete(NAMESPACES, "lab")

        await NamespaceKeeper(stage.registry, ca="PEM", now=stage.now)._reconcile("lab")

        await stage.until(lambda: "lab" not in stage.names(NAMESPACES))

    stage.play(scene, lambda registry, now: [])


def test_conditions_are_written_only_when_their_words_change() -> None:
    namespace: dict[str, Any] = {"metadata": {}, "status": {"phase": "Terminating"}}
    content: list[tuple[str, dict[str, Any]]] = [("pods", {"metadata": {}})]

    told = with_conditions(namespace, conditions_of(content, now=0))

    assert told is not None
    assert told["status"]["phase"] == "Terminating"
    assert with_conditions(told, conditions_of(content, now=99)) is None
    assert with_conditions(told, conditions_of([], now=99)) is not None
