"""Volumes as directories, and as pods see them."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.volume_files import File, VolumeError, publish
from trainmaster.cluster.kubelet.volumes import Volumes
from trainmaster.objects.meta import Json
from trainmaster.testing.podworld import Lab, PodWorld, a_container, a_lab, a_pod, script


def secret(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def pod_with(volume: Json, **metadata: Any) -> dict[str, Any]:
    pod = a_pod("one", "true", volumes=[{"name": "v", **volume}])
    pod["metadata"] |= {"uid": "u", **metadata}
    return pod


def prepared(
    root: Path, volume: Json, *objects: tuple[str, Json], stand_ins: dict[str, Path] | None = None, **mount: Any
) -> Path:
    """Where the volume lies after it was prepared in a world with these objects."""

    async def main() -> Path:
        world = PodWorld()
        for kind, found in objects:
            world.add(kind, found)
        volumes = Volumes(
            world,
            root / "volumes",
            lambda namespace, account: f"token of {namespace}/{account}",
            stand_ins=stand_ins,
        )
        await volumes.prepare(pod_with(volume, labels={"app": "x"}), {}, "10.244.0.1")
        container = a_container("true", volumeMounts=[{"name": "v", "mountPath": "/v", **mount}])
        return Path(volumes.mounts(container, {"WHO": "me"})[0].source)

    return asyncio.run(main())


def contents(directory: Path) -> dict[str, str]:
    """What a container sees: names that begin with two dots are how it is done."""
    found: dict[str, str] = {}
    for parent, directories, names in os.walk(directory, followlinks=True):
        directories[:] = [name for name in directories if not name.startswith("..")]
        paths = [Path(parent, name) for name in names]
        found |= {str(path.relative_to(directory)): path.read_text() for path in paths}
    return found


SETTINGS: Json = {"metadata": {"name": "settings"}, "data": {"a": "1", "b": "2"}, "binaryData": {"c": secret("3")}}
PASSWORDS: Json = {"metadata": {"name": "passwords"}, "data": {"root": secret("hunter2")}}


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        pytest.param({"configMap": {"name": "settings"}}, {"a": "1", "b": "2", "c": "3"}, id="config-map"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "a", "path": "deep/er"}]}},
            {"deep/er": "1"},
            id="config-map-items",
        ),
        pytest.param({"configMap": {"name": "absent", "optional": True}}, {}, id="optional"),
        pytest.param({"secret": {"secretName": "passwords"}}, {"root": "hunter2"}, id="secret"),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
            {"labels": 'app="x"'},
            id="downward",
        ),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"configMap": {"name": "settings", "items": [{"key": "a", "path": "a"}]}},
                        {"secret": {"name": "passwords"}},
                        {"serviceAccountToken": {"path": "token"}},
                        {"downwardAPI": {"items": [{"path": "me", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                    ]
                }
            },
            {"a": "1", "root": "hunter2", "token": "token of default/default", "me": "one"},
            id="projected",
        ),
    ],
)
def test_files_come_from_what_the_volume_names(tmp_path: Path, volume: Json, files: dict[str, str]) -> None:
    path = prepared(tmp_path, volume, ("ConfigMap", SETTINGS), ("Secret", PASSWORDS))

    assert contents(path) == files


@pytest.mark.parametrize(
    ("volume", "message"),
    [
        pytest.param({"configMap": {"name": "absent"}}, 'configmap "absent" not found', id="config-map"),
        pytest.param({"secret": {"secretName": "absent"}}, 'secret "absent" not found', id="secret"),
        pytest.param(
            {"configMap": {"name": "settings", "items": [{"key": "z", "path": "z"}]}}, "has no key 'z'", id="key"
        ),
        pytest.param({"persistentVolumeClaim": {"claimName": "absent"}}, '"absent" not found', id="claim"),
        pytest.param({"persistentVolumeClaim": {"claimName": "unbound"}}, "not bound to a volume yet", id="unbound"),
        pytest.param({"nfs": {"server": "s", "path": "/p"}}, 'NFS share s:/p .* {"s:/p": DIRECTORY}', id="nfs"),
        pytest.param({"cephfs": {"monitors": ["m"]}}, "kind cephfs is not available here", id="ceph"),
        pytest.param({"hostPath": {"path": "/etc/passwd", "type": "Directory"}}, "is not a directory", id="type"),
        pytest.param({"hostPath": {"path": "/no/such", "type": "File"}}, "No such file", id="missing"),
    ],
)
def test_a_volume_that_cannot_be_had_says_why(tmp_path: Path, volume: Json, message: str) -> None:
    unbound = {"metadata": {"name": "unbound"}, "spec": {}, "status": {"phase": "Pending"}}

    with pytest.raises(VolumeError, match=message):
        prepared(tmp_path, volume, ("ConfigMap", SETTINGS), ("PersistentVolumeClaim", unbound))


CLAIM: Json = {"persistentVolumeClaim": {"claimName": "claim"}}


def a_bound_claim(source: Json, **annotations: str) -> list[tuple[str, Json]]:
    claim = {"metadata": {"name": "claim"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    volume = {"metadata": {"name": "pv", "namespace": "", "annotations": annotations}, "spec": source}
    return [("PersistentVolumeClaim", claim), ("PersistentVolume", volume)]


@pytest.mark.parametrize(
    ("volume", "source", "part"),
    [
        pytest.param({"hostPath": {"path": "/far/away"}}, {}, "", id="host-path"),
        pytest.param({"hostPath": {"path": "/far/away/below/it"}}, {}, "below/it", id="below"),
        pytest.param({"nfs": {"server": "nas", "path": "/far"}}, {}, "", id="nfs"),
        pytest.param(CLAIM, {"hostPath": {"path": "/far/away"}}, "", id="claimed-host-path"),
        pytest.param(CLAIM, {"local": {"path": "/far/away/"}}, "", id="claimed-local"),
        pytest.param(CLAIM, {"nfs": {"server": "nas", "path": "/far/off"}}, "off", id="claimed-nfs"),
    ],
)
def test_a_directory_of_this_machine_stands_for_one_that_lies_elsewhere(
    tmp_path: Path, volume: Json, source: Json, part: str
) -> None:
    here = tmp_path / "here"
    stand_ins = {"/far/away": here, "nas:/far": here, "/nas": tmp_path}

    found = prepared(tmp_path, volume, *a_bound_claim(source), stand_ins=stand_ins)

    assert found == here / part
    assert found.is_dir()


def test_nothing_stands_for_a_directory_that_was_made_for_a_claim(tmp_path: Path) -> None:
    made = tmp_path / "made"
    claimed = a_bound_claim({"hostPath": {"path": str(made)}}, **{"pv.kubernetes.io/provisioned-by": "us"})

    assert prepared(tmp_path, CLAIM, *claimed, stand_ins={str(tmp_path): tmp_path / "here"}) == made


def test_a_claim_leads_to_the_directory_of_its_volume(tmp_path: Path) -> None:
    claim = {"metadata": {"name": "data"}, "spec": {"volumeName": "disk"}, "status": {"phase": "Bound"}}
    volume = {"metadata": {"name": "disk"}, "spec": {"hostPath": {"path": str(tmp_path / "disk")}}}
    objects = (("PersistentVolumeClaim", claim), ("PersistentVolume", volume))

    path = prepared(tmp_path, {"persistentVolumeClaim": {"claimName": "data"}}, *objects)

    assert path == tmp_path / "disk"
    assert path.is_dir()


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        pytest.param("DirectoryOrCreate", True, id="directory"),
        pytest.param("FileOrCreate", False, id="file"),
        pytest.param("", True, id="unsaid"),
    ],
)
def test_a_host_path_is_made_where_its_type_allows(tmp_path: Path, kind: str, made: bool) -> None:
    path = prepared(tmp_path, {"hostPath": {"path": str(tmp_path / "new"), "type": kind}})

    assert path.is_dir() == made
    assert path.exists()


def test_a_socket_is_known_by_its_type(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))

        path = prepared(tmp_path, {"hostPath": {"path": str(tmp_path / "s"), "type": "Socket"}})

    assert path == tmp_path / "s"


def test_sub_paths_are_made_inside_the_volume_and_nowhere_else(tmp_path: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "out").symlink_to("/etc")

    inside = prepared(tmp_path, {"hostPath": {"path": str(host)}}, subPathExpr="of/$(WHO)")

    assert inside == host / "of" / "me"
    assert inside.is_dir()
    with pytest.raises(VolumeError, match="leads out of its volume"):
        prepared(tmp_path, {"hostPath": {"path": str(host)}}, subPath="out/ssl")


def test_modes_are_the_items_or_the_default(tmp_path: Path) -> None:
    volume = {
        "name": "settings",
        "defaultMode": 0o600,
        "items": [{"key": "a", "path": "a"}, {"key": "b", "path": "b", "mode": 0o755}],
    }

    path = prepared(tmp_path, {"configMap": volume}, ("ConfigMap", SETTINGS))

    assert (path / "a").stat().st_mode & 0o777 == 0o600
    assert (path / "b").stat().st_mode & 0o777 == 0o755


def test_published_files_are_for_every_user_whatever_our_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        publish(tmp_path / "keys", {"id": File(b"1", 0o644), "deep/er/id": File(b"1", 0o644)})
    finally:
        os.umask(before)

    within = tmp_path / "keys" / "..data"
    assert {
        stat.S_IMODE(path.stat().st_mode) for path in (within.parent, within, within / "deep", within / "deep" / "er")
    } == {0o755}


def test_published_files_are_replaced_all_at_once(tmp_path: Path) -> None:
    publish(tmp_path, {"a": File(b"1", 0o644), "b": File(b"1", 0o644)})
    old = (tmp_path / "..data").resolve()

    publish(tmp_path, {"a": File(b"2", 0o644), "c": File(b"2", 0o644)})

    assert contents(tmp_path) == {"a": "2", "c": "2"}
    assert not old.exists()
    assert (tmp_path / "a").readlink() == Path("..data/a")


@pytest.mark.sandbox
def test_a_running_pod_sees_the_change_of_its_config_map(tmp_path: Path) -> None:
    wait = "import time\nwhile open('/config/a').read() != 'new': time.sleep(0.01)\nprint('seen')"
    container = a_container(*script(wait), volumeMounts=[{"name": "v", "mountPath": "/config"}])

    async def main() -> str:
        async with a_lab(tmp_path) as lab:
            world = lab.world
            world.add("ConfigMap", {"metadata": {"name": "settings"}, "data": {"a": "old"}})
            volumes = [{"name": "v", "configMap": {"name": "settings"}}]
            world.add("Pod", a_pod("one", containers=[container], volumes=volumes))
            await world.until(lambda: world.phase("one") == "Running")
            world.add("ConfigMap", {"metadata": {"name": "settings"}, "data": {"a": "new"}})
            await world.finished("one")
            return lab.log("one")

    assert asyncio.run(main()) == "seen\n"


@pytest.mark.sandbox
def test_a_pod_waits_for_its_volumes_and_says_so(tmp_path: Path) -> None:
    container = a_container("cat", "/config/a", volumeMounts=[{"name": "v", "mountPath": "/config"}])

    async def body(lab: Lab) -> str:
        world = lab.world
        world.add(
            "Pod", a_pod("one", containers=[container], volumes=[{"name": "v", "configMap": {"name": "settings"}}])
        )
        await world.until(lambda: "FailedMount" in world.reasons() and "waiting" in world.state("one"))
        assert world.state("one")["waiting"]["reason"] == "ContainerCreating"
        world.add("ConfigMap", SETTINGS)
        await world.finished("one")
        return lab.log("one")

    async def main() -> str:
        async with a_lab(tmp_path, timing=Timing(retry=0.05)) as lab:
            return await body(lab)

    assert asyncio.run(main()) == "1"


@pytest.mark.sandbox
def test_empty_directories_are_shared_by_containers_nested_in_others_and_gone_with_the_pod(tmp_path: Path) -> None:
    mounts = [{"name": "v", "mountPath": "/a"}, {"name": "w", "mountPath": "/a/b/c"}]
    first = a_container("sh", "-c", "echo 1 > /a/x; echo 2 > /a/b/c/y", name="first", volumeMounts=mounts)
    main_container = a_container(
        "sh", "-c", "cat /a/x /w/y", volumeMounts=[mounts[0], {"name": "w", "mountPath": "/w"}]
    )
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {"medium": "Memory"}}]

    async def main() -> tuple[str, bool]:
        async with a_lab(tmp_path) as lab:
            pod = a_pod("one", containers=[main_container], initContainers=[first], volumes=volumes)
            log = await lab.ran(pod)
            directory = tmp_path / "pods" / lab.world.pod("one")["metadata"]["uid"] / "volumes"
            was_there = directory.exists()
            lab.world.delete_pod("one")
            await lab.world.until(lambda: not lab.world.has_pod("one"))
            while directory.exists():  # noqa: ASYNC110  (nothing tells of it)
                await asyncio.sleep(0.01)
            return log, was_there

    assert asyncio.run(main()) == ("1\n2\n", True)
