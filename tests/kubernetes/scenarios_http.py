"""HTTP itself: methods, media types, paths, credentials, what a server says of itself."""

from __future__ import annotations

from typing import Any

from tests.kubernetes.exchange import Api
from tests.kubernetes.scenario import Scenarios
from tests.kubernetes.specimens import CONFIG_MAPS, DEPLOYMENTS, LEASES, PODS, a_config_map, a_lease

SCENARIOS = Scenarios()


@SCENARIOS
def methods(api: Api) -> None:
    api.send("POST", CONFIG_MAPS, a_config_map(), label="create")
    rows = {
        "put a collection": ("PUT", CONFIG_MAPS),
        "patch a collection": ("PATCH", CONFIG_MAPS),
        "post an object": ("POST", f"{CONFIG_MAPS}/c"),
        "post to all namespaces": ("POST", "/api/v1/configmaps"),
        "delete a group": ("DELETE", "/apis/apps"),
        "post to a version": ("POST", "/api/v1"),
        "options": ("OPTIONS", f"{CONFIG_MAPS}/c"),
        "trace": ("TRACE", f"{CONFIG_MAPS}/c"),
        "own method": ("FROB", f"{CONFIG_MAPS}/c"),
        "post a log": ("POST", f"{PODS}/p/log"),
        "delete a scale": ("DELETE", f"{DEPLOYMENTS}/d/scale"),
        "get a binding": ("GET", f"{PODS}/p/binding"),
        "put an eviction": ("PUT", f"{PODS}/p/eviction"),
    }
    for label, (method, path) in rows.items():
        body: dict[str, str] | None = {} if method in ("PUT", "POST", "PATCH") else None
        api.send(method, path, body, label=label)


@SCENARIOS
def media_types(api: Api) -> None:
    yaml = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: yaml\ndata:\n  a: 'yes'\n"
    api.send("POST", CONFIG_MAPS, yaml, content_type="application/yaml", label="YAML in")
    api.send("POST", CONFIG_MAPS, b"a: [", content_type="application/yaml", label="bad YAML in")
    api.send("POST", CONFIG_MAPS, a_config_map("t"), content_type="text/plain", label="text in")
    api.send("POST", CONFIG_MAPS, a_config_map("x"), content_type="application/xml", label="XML in")
    api.send("POST", CONFIG_MAPS, a_config_map("n"), content_type=None, label="no type in")
    api.send("POST", CONFIG_MAPS, a_config_map("u"), content_type="application/json; charset=utf-8", label="charset in")
    api.send("POST", CONFIG_MAPS, a_config_map("o"), content_type="nonsense", label="nonsense in")
    api.send("PATCH", f"{CONFIG_MAPS}/yaml", {}, content_type="application/json", label="patch without its type")
    api.send("PATCH", f"{CONFIG_MAPS}/yaml", {}, content_type="application/merge-patch+json; charset=utf-8",
             label="patch with a charset")  # fmt: skip
    for accept in ("*/*", "application/*", "text/html", "application/xml", "", "application/json;q=0.5", "nonsense",
                   "text/html,application/json", "application/yaml", "application/json;stream=watch"):  # fmt: skip
        api.send("GET", f"{CONFIG_MAPS}/yaml", accept=accept, label=f"accept {accept}")


@SCENARIOS
def paths(api: Api) -> None:
    api.send("POST", LEASES, a_lease(), label="create")
    rows = (
        f"{LEASES}/", f"{LEASES}/l/", f"{LEASES}/l/nothing", f"{LEASES}/l/status", f"{LEASES}/l/a/b",
        "/api/v1/namespaces/{ns}/", "/api/v1/namespaces//pods", "/api/v1/nothing", "/api/v1/namespaces/{ns}/pods/%20",
        "/api/v1/namespaces/{ns}/pods/a%2Fb", "/api/v1/namespaces/{ns}/pods/%C3%A4", "/apis/apps/v9/deployments",
        "/apis/extensions/v1beta1/deployments", "/api/v1/componentstatuses/none", "/apis/batch", "/healthz", "/livez",
        "/readyz", "/healthz/nothing", "/apis/apps/v1/namespaces/{ns}/pods", "/api/v1/watch/nothing",
    )  # fmt: skip
    for path in rows:
        api.send("GET", path, label=path)
    api.send("GET", "/version", label="/version", arrange=sorted)


def _kind_of(body: Any) -> Any:
    return body["kind"]


@SCENARIOS
def credentials(api: Api) -> None:
    api.send("GET", PODS, label="wrong token", headers={"Authorization": "Bearer wrong"})
    api.send("GET", PODS, label="no token", headers={"Authorization": ""})
    api.send("GET", PODS, label="not a bearer", headers={"Authorization": "Basic eDp5"})
    for form in ("bearer {}", "BEARER {}", "Bearer {} more", "Bearer  {}", "Bearer{}", "Bearer", "{}"):
        api.send("GET", PODS, label=form, headers={"Authorization": form.format(api.token)}, arrange=_kind_of)
    api.send("GET", "/healthz", label="health without token", headers={"Authorization": ""})
    api.send("GET", "/version", label="version without token", headers={"Authorization": ""}, arrange=sorted)


@SCENARIOS
def options_in_the_query(api: Api) -> None:
    api.send("POST", f"{CONFIG_MAPS}?fieldManager=me", a_config_map("a"), label="manager")
    api.send("POST", f"{CONFIG_MAPS}?fieldManager={'m' * 129}", a_config_map("b"), label="long manager")
    api.send("POST", f"{CONFIG_MAPS}?fieldManager=a%0Ab", a_config_map("b"), label="odd manager")
    api.send("POST", CONFIG_MAPS, a_config_map("c"), headers={"User-Agent": "kubectl/v1.2 (x)"}, label="by agent")
    api.send("GET", f"{CONFIG_MAPS}/a?nonsense=1", label="unknown option")
    api.send("GET", f"{CONFIG_MAPS}/a?pretty=maybe", label="pretty maybe")
    api.watch(f"{PODS}?watch=maybe&timeoutSeconds=1", label="watch maybe")


@SCENARIOS
def logs_of_pods(api: Api) -> None:
    """As far as no kubelet is asked: beside the embedded server of this test there is none."""
    api.send("GET", f"{PODS}/none/log", label="of nothing")
    api.send("GET", f"{PODS}/none/log?container=odd", label="of nothing's container")


@SCENARIOS
def reviews(api: Api) -> None:
    group = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    asked = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "{ns}"}}
    api.send("POST", group, {**review, "spec": asked}, label="may I")
    api.send("POST", group, {**review, "spec": {}}, label="may I what")
    api.send("GET", group, label="list reviews")
