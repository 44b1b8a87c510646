"""How the API server addresses a kind."""

from __future__ import annotations

import pytest

from trainmaster.objects.resource import PODS, PRIORITY_CLASSES, Resource

JOBS = Resource("kubeflow.org", "v1", "tfjobs", "TFJob")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param(PODS.path(), "/api/v1/pods", id="core, all namespaces"),
        pytest.param(PODS.path("ns"), "/api/v1/namespaces/ns/pods", id="core, one namespace"),
        pytest.param(PODS.path("ns", "p"), "/api/v1/namespaces/ns/pods/p", id="core, one object"),
        pytest.param(PODS.path("ns", "p", "log"), "/api/v1/namespaces/ns/pods/p/log", id="core, subresource"),
        pytest.param(JOBS.path(), "/apis/kubeflow.org/v1/tfjobs", id="group, all namespaces"),
        pytest.param(
            JOBS.path("ns", "j", "status"), "/apis/kubeflow.org/v1/namespaces/ns/tfjobs/j/status", id="group, status"
        ),
        pytest.param(
            PRIORITY_CLASSES.path("ns", "high"),
            "/apis/scheduling.k8s.io/v1/priorityclasses/high",
            id="cluster-wide kinds ignore the namespace",
        ),
    ],
)
def test_the_path_follows_from_group_version_and_plural(path: str, expected: str) -> None:
    assert path == expected


def test_the_core_group_has_no_name_in_its_api_version() -> None:
    assert PODS.api_version == "v1"
    assert JOBS.api_version == "kubeflow.org/v1"
