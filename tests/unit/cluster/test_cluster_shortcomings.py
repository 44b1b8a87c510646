"""What a pod asks for and this machine cannot give is told; what nobody asked for is not."""

import types

import pytest

from trainmaster.cluster.kubelet.podworker import _shortcomings

LIMITED = {"name": "c", "resources": {"limits": {"memory": "64Mi"}}}
FREE = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 1}}}


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({"containers": [LIMITED]}, ["LimitsNotEnforced"]),
        ({"containers": [FREE], "initContainers": [LIMITED]}, []),
        ({"containers": [FREE]}, []),
    ],
    ids=["limits", "only of an init container, as operators add them", "none of memory or CPU"],
)
def test_that_limits_are_not_enforced_is_told_of_containers_that_have_some(spec, told):
    sandbox = types.SimpleNamespace(can_limit=False, kind="namespaces")

    reasons = [reason for reason, _ in _shortcomings({"spec": spec}, sandbox)]

    assert reasons == told
