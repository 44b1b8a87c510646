"""A machine that gives no namespaces is told of in words, with what its owner can do."""

import pytest

from trainmaster.cluster.kubelet.launcher import Launcher
from trainmaster.cluster.kubelet.sandbox import NamespaceSandbox, SandboxError
from trainmaster.cluster.kubelet.zygote import HelperError
from trainmaster.testing import clock


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        ("unshare 0x4c020000: No space left on device", "sysctl -w user.max_user_namespaces=15000"),
        ("unshare 0x10000000: Operation not permitted", "sysctl -w kernel.unprivileged_userns_clone=1"),
        ("[Errno 13] Permission denied: '/proc/self/uid_map'", "kernel.apparmor_restrict_unprivileged_userns=0"),
        ("the helper process ended at once", "does not allow namespaces: the helper process ended at once"),
    ],
    ids=["used up", "forbidden", "half forbidden", "unheard of"],
)
def test_a_refusal_of_the_kernel_names_its_remedy(refusal, words, tmp_path, monkeypatch):
    async def refuse(root, settings):
        raise HelperError(refusal)

    monkeypatch.setattr(Launcher, "open", refuse)

    with pytest.raises(SandboxError) as caught:
        clock.run(NamespaceSandbox.open(tmp_path))

    assert words in str(caught.value)
    assert "0x" not in str(caught.value)
