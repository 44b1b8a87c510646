"""A ServiceAccount's token can be read by the pod that it is for, and by nobody else."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.cluster.otheruser import IS_ROOT

from trainmaster.cluster.kubelet.token_files import Access, token_access
from trainmaster.cluster.kubelet.toolbox import Toolbox
from trainmaster.cluster.kubelet.volumes import Volumes
from trainmaster.objects.meta import Json
from trainmaster.testing.podworld import PodWorld, a_container, a_lab, a_pod

TOKEN_VOLUME: Json = {
    "name": "v",
    "projected": {"defaultMode": 0o644, "sources": [{"serviceAccountToken": {"path": "token"}}]},
}
MINE = Access(0o600)


def a_pod_as(*users: int | None, **context: Any) -> dict[str, Any]:
    containers: list[Json] = [
        a_container("true", name=f"c{number}", **({} if user is None else {"securityContext": {"runAsUser": user}}))
        for number, user in enumerate(users or (None,))
    ]
    pod = a_pod("one", containers=containers, securityContext=context, volumes=[TOKEN_VOLUME])
    pod["metadata"]["uid"] = "u"
    return pod


@pytest.mark.parametrize(
    ("pod", "access"),
    [
        pytest.param(a_pod_as(), MINE, id="nothing-said"),
        pytest.param(a_pod_as(0), MINE, id="root"),
        pytest.param(a_pod_as(runAsUser=1000), Access(0o600, 1000), id="a-user"),
        pytest.param(a_pod_as(1000, None), Access(0o600, 1000), id="root-and-a-user"),
        pytest.param(a_pod_as(1000, 1001), Access(0o644), id="two-users"),
        pytest.param(a_pod_as(1000, 1001, fsGroup=7), Access(0o640, -1, 7), id="two-users-of-a-group"),
        pytest.param(a_pod_as(fsGroup=7), Access(0o640, -1, 7), id="a-group"),
        pytest.param(a_pod_as(1000, runAsUser=5), Access(0o600, 1000), id="the-container-has-the-last-word"),
    ],
)
def test_a_token_is_for_the_users_of_its_pod(monkeypatch: pytest.MonkeyPatch, pod: Json, access: Access) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    assert token_access(pod) == access


def test_pods_of_an_ordinary_user_run_as_that_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert token_access(a_pod_as(5, 6, fsGroup=7)) == MINE


def seen(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid


def expected(access: Access) -> tuple[int, int, int]:
    user, group = (
        own if asked < 0 else asked for asked, own in zip(access.owner, (os.geteuid(), os.getegid()), strict=True)
    )
    return access.mode, user, group


PODS = [a_pod_as(), a_pod_as(1000), a_pod_as(1000, 1001), a_pod_as(1000, 1001, fsGroup=7)]


@pytest.mark.parametrize("pod", PODS, ids=["nothing-said", "a-user", "two-users", "a-group"])
def test_the_file_of_a_token_volume_is_made_so_whatever_its_default_mode(tmp_path: Path, pod: Json) -> None:
    volumes = Volumes(PodWorld(), tmp_path, lambda *_: "secret")

    asyncio.run(volumes.prepare(pod, {}, ""))

    assert seen(tmp_path / "v" / "token") == expected(token_access(pod))


def test_each_reader_of_a_namespaces_token_has_a_file_of_its_own(tmp_path: Path) -> None:
    sandbox: Any = SimpleNamespace(kind="namespaces")
    tools = Toolbox(tmp_path / "inside", sandbox, port=6443, ca="CA", token=lambda *_: "secret")

    directories = [tools.directory_of(pod) for pod in PODS]

    assert len(set(directories)) == (len(PODS) if IS_ROOT else 1)
    for pod, directory in zip(PODS, directories, strict=True):
        assert seen(directory / "account" / "token") == expected(token_access(pod))


def test_tokens_of_an_earlier_cluster_are_gone(tmp_path: Path) -> None:
    (tmp_path / "inside" / "old" / "account").mkdir(parents=True)
    sandbox: Any = SimpleNamespace(kind="namespaces")

    Toolbox(tmp_path / "inside", sandbox, port=6443, ca="CA", token=lambda *_: "secret")

    assert not (tmp_path / "inside").exists()


@pytest.mark.sandbox
@pytest.mark.parametrize(
    "user",
    [
        pytest.param(None, id="as-we-are"),
        # Without namespaces volumes stay where only the owner of the cluster may go.
        pytest.param(1000, id="as-another", marks=pytest.mark.namespaces),
    ],
)
def test_a_container_reads_its_token(tmp_path: Path, user: int | None) -> None:
    mounts = [{"name": "v", "mountPath": "/secrets"}]
    context = {} if user is None else {"runAsUser": user}
    container = a_container("cat", "/secrets/token", volumeMounts=mounts, securityContext=context)

    async def main() -> str:
        async with a_lab(tmp_path) as lab:
            return await lab.ran(a_pod("one", containers=[container], volumes=[TOKEN_VOLUME]))

    assert asyncio.run(main()) == "not-a-token"
