"""The installation for kustomize: CRDs, a base that belongs to no namespace yet, and overlays.

An overlay is the difference between two installations, so it says nothing that `trainmaster manifests` would not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tools.generate_text import HEADER, comment, documents, yaml_text
from trainmaster.api.framework import Framework
from trainmaster.objects.meta import Json
from trainmaster.operator.install import NAME, Installation, crds, manifests

API = {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization"}
Key = tuple[str, str]
"""Kind and name."""


@dataclass(frozen=True)
class Overlay:
    about: str
    under: str
    """What it is laid over."""

    standing: Installation
    """What that gives by itself, in the overlay's namespace."""

    wanted: Installation
    with_namespace: bool = False
    more: Json | None = None


def overlays(frameworks: tuple[Framework, ...]) -> Mapping[str, Overlay]:
    plain = Installation(frameworks)
    shared = replace(plain, namespace="kubeflow")
    alone = replace(plain, namespace="training")
    return {
        "standalone": Overlay(STANDALONE, "../../base", plain, plain, with_namespace=True),
        "kubeflow": Overlay(KUBEFLOW, "../../base", shared, shared),
        "webhooks": Overlay(WEBHOOKS, "../standalone", plain, replace(plain, webhooks="validating")),
        "volcano": Overlay(VOLCANO, "../standalone", plain, replace(plain, gang_scheduler_name="volcano")),
        "single-namespace": Overlay(
            SINGLE,
            "../../base",
            alone,
            replace(alone, watch_namespace=alone.namespace),
            with_namespace=True,
            more=_following(replace(alone, watch_namespace=alone.namespace)),
        ),
    }


STANDALONE = "The operator in a namespace of its own, for jobs in all namespaces: the same as deploy/trainmaster.yaml."
KUBEFLOW = """\
The operator in the namespace that Kubeflow already has, in the place of training-operator. That namespace is not part
of this, so that `kubectl delete -k` leaves it alone."""
VOLCANO = "The operator with gang scheduling by Volcano, which has to be installed first."
WEBHOOKS = """\
The operator with admission webhooks that refuse invalid jobs. They name its namespace in several places, so
another one is better had by `trainmaster manifests --webhooks validating --namespace …`."""
SINGLE = """\
Operator and jobs in one namespace, and hardly a right outside it. For another namespace, change `namespace` here:
everything else follows."""


def files(frameworks: tuple[Framework, ...]) -> Iterator[tuple[str, str]]:
    yield "crds/crds.yaml", documents(crds(frameworks))
    yield "crds/kustomization.yaml", HEADER + yaml_text({**API, "resources": ["crds.yaml"]})
    yield "base/operator.yaml", documents(_neutral(_operator(Installation(frameworks))))
    yield "base/kustomization.yaml", HEADER + yaml_text({**API, "resources": ["../crds", "operator.yaml"]})
    for name, overlay in overlays(frameworks).items():
        for path, text in _overlay_files(overlay):
            yield f"overlays/{name}/{path}", text


def _operator(installation: Installation) -> Iterator[Json]:
    """All but the CRDs and the namespace."""
    kinds = ("Namespace", "CustomResourceDefinition")
    return (item for item in manifests(installation) if item["kind"] not in kinds)


def _neutral(objects: Iterable[Json]) -> Iterator[Json]:
    """Without namespaces: overlays say where. A subject has to name one, which kustomize then changes with the rest."""
    for item in objects:
        metadata = {key: value for key, value in item["metadata"].items() if key != "namespace"}
        subjects = {"subjects": [{**s, "namespace": "default"} for s in item["subjects"]]} if "subjects" in item else {}
        yield {**item, "metadata": metadata, **subjects}


def _overlay_files(overlay: Overlay) -> Iterator[tuple[str, str]]:
    standing, wanted = _by_key(_operator(overlay.standing)), _by_key(_operator(overlay.wanted))
    added = [item for key, item in wanted.items() if key not in standing]
    if overlay.with_namespace:
        added.insert(0, next(item for item in manifests(overlay.wanted) if item["kind"] == "Namespace"))
    patches = [*_removals(standing, wanted), *_changes(standing, wanted)]
    kustomization = {
        **API,
        "namespace": overlay.wanted.namespace,
        "resources": [overlay.under, *(["additions.yaml"] if added else [])],
        **({"patches": patches} if patches else {}),
        **(overlay.more or {}),
    }
    yield "kustomization.yaml", HEADER + comment(overlay.about) + yaml_text(kustomization)
    if added:
        yield "additions.yaml", documents(_neutral(added))


def _by_key(objects: Iterable[Json]) -> dict[Key, Json]:
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def _removals(standing: Mapping[Key, Json], wanted: Mapping[Key, Json]) -> Iterator[Json]:
    for key, item in standing.items():
        if key not in wanted:
            identity = {"apiVersion": item["apiVersion"], "kind": key[0], "metadata": {"name": key[1]}}
            yield {"patch": yaml_text({"$patch": "delete", **identity})}


def _changes(standing: Mapping[Key, Json], wanted: Mapping[Key, Json]) -> Iterator[Json]:
    for key, item in wanted.items():
        operations = list(_difference(standing[key], item)) if key in standing else []
        if operations:
            yield {"target": {"kind": key[0], "name": key[1]}, "patch": yaml_text(operations)}


def _difference(old: Any, new: Any, path: str = "") -> Iterator[Json]:
    """As JSON patches. Lists are compared item by item only where nothing came or went."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() == new.keys():
        for key in old:
            yield from _difference(old[key], new[key], f"{path}/{key}")
    elif _is_list(old) and _is_list(new) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _difference(*pair, f"{path}/{index}")
    elif old != new:
        yield {"op": "replace", "path": path, "value": new}


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _following(installation: Installation) -> Json:
    """The flag that confines the operator takes its value from where the Deployment is put."""
    deployment = next(item for item in manifests(installation) if item["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    index = next(i for i, argument in enumerate(arguments) if argument.startswith("--namespace="))
    return {
        "replacements": [
            {
                "source": {"kind": "Deployment", "name": NAME, "fieldPath": "metadata.namespace"},
                "targets": [
                    {
                        "select": {"kind": "Deployment", "name": NAME},
                        "fieldPaths": [f"spec.template.spec.containers.0.args.{index}"],
                        "options": {"delimiter": "=", "index": 1},
                    }
                ],
            }
        ]
    }
