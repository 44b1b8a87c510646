"""No path of a manifest leads out of its volume: refused on admission, and out of reach for objects of older stores."""

from __future__ import annotations

import asyncio
import os
import types
from pathlib import Path
from typing import Any

import pytest

from trainmaster.cluster.kubelet import beneath, spawn_mounts
from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.volume_files import BadVolumeError, File, VolumeError, publish
from trainmaster.cluster.kubelet.volumes import Volumes
from trainmaster.cluster.registry.admission_table import BUILTIN_POLICIES
from trainmaster.cluster.registry.pod_check import check_pod, check_template
from trainmaster.cluster.registry.pod_defaults import fill_pod
from trainmaster.objects.meta import Json
from trainmaster.testing import clock
from trainmaster.testing.podworld import PodWorld, a_container, a_pod, running

ABSOLUTE, BACKWARDS, RESERVED = (
    "must be a relative path",
    "must not contain '..'",
    "must not start with '..'",
)
BAD_PATHS = {"/etc/cron.d/x": ABSOLUTE, "../../x": BACKWARDS, "a/../../x": BACKWARDS, "..data/x": RESERVED}


async def never() -> None:
    await asyncio.Event().wait()


NO_SANDBOX: Any = types.SimpleNamespace(kind="namespaces", host_ip="10.244.0.1", can_limit=True, lost=never)
"""Of pods that never get as far as to need one."""

BAD_MODE = "must be a number between 0 and 0777 (octal), both inclusive"


def complaints(volume: Json, **mount: Any) -> list[str]:
    container = a_container("true", volumeMounts=[{"name": "v", "mountPath": "/v", **mount}])
    pod = a_pod("one", containers=[container], volumes=[{"name": "v", **volume}])
    fill_pod(pod)
    return [str(cause) for cause in check_pod(pod)]


def volume_of(kind: str, path: str) -> Json:
    item = {"key": "k", "path": path}
    about = {"path": path, "fieldRef": {"fieldPath": "metadata.name"}}
    sources: dict[str, Json] = {
        "configMap": {"configMap": {"name": "s", "items": [item]}},
        "secret": {"secret": {"secretName": "s", "items": [item]}},
        "downwardAPI": {"downwardAPI": {"items": [about]}},
        "projected.configMap": {"projected": {"sources": [{"configMap": {"name": "s", "items": [item]}}]}},
        "projected.secret": {"projected": {"sources": [{"secret": {"name": "s", "items": [item]}}]}},
        "projected.downwardAPI": {"projected": {"sources": [{"downwardAPI": {"items": [about]}}]}},
        "projected.token": {"projected": {"sources": [{"serviceAccountToken": {"path": path}}]}},
    }
    return sources[kind]


FIELDS = {
    "configMap": "spec.volumes[0].configMap.items[0].path",
    "secret": "spec.volumes[0].secret.items[0].path",
    "downwardAPI": "spec.volumes[0].downwardAPI.path",
    "projected.configMap": "spec.volumes[0].projected.sources[0].configMap.items[0].path",
    "projected.secret": "spec.volumes[0].projected.sources[0].secret.items[0].path",
    "projected.downwardAPI": "spec.volumes[0].projected.sources[0].downwardAPI.path",
    "projected.token": "spec.volumes[0].projected.path",
}


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("kind", FIELDS)
def test_a_path_that_leaves_its_volume_is_refused_in_the_words_of_kubernetes(kind: str, path: str) -> None:
    assert complaints(volume_of(kind, path)) == [f'{FIELDS[kind]}: Invalid value: "{path}": {BAD_PATHS[path]}']


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("path", ["a", "deep/er", "a..b", ".hidden", "...", "x/..y"])
def test_a_path_below_its_volume_is_taken(kind: str, path: str) -> None:
    expected = [f'{FIELDS[kind]}: Invalid value: "...": {RESERVED}'] if path == "..." else []

    assert complaints(volume_of(kind, path)) == expected


@pytest.mark.parametrize(
    ("volume", "complaint"),
    [
        pytest.param(
            {"configMap": {"name": "s", "defaultMode": 0o1000}},
            f"configMap.defaultMode: Invalid value: 512: {BAD_MODE}",
        ),
        pytest.param(
            {"secret": {"secretName": "s", "defaultMode": -1}}, f"secret.defaultMode: Invalid value: -1: {BAD_MODE}"
        ),
        pytest.param(
            {"secret": {"secretName": "s", "items": [{"key": "k", "path": "p", "mode": 0o4755}]}},
            f"secret.items[0].mode: Invalid value: 2541: {BAD_MODE}",
        ),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "p", "mode": 512, "fieldRef": {"fieldPath": "metadata.name"}}]}},
            f"downwardAPI.mode: Invalid value: 512: {BAD_MODE}",
        ),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "p"}]}},
            "downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
        ),
        pytest.param({"projected": {"defaultMode": 512}}, f"projected.defaultMode: Invalid value: 512: {BAD_MODE}"),
        pytest.param({"projected": {"sources": [{"serviceAccountToken": {}}]}}, "projected.path: Required value"),
        pytest.param(
            {"projected": {"sources": [{"secret": {"items": []}}]}},
            "projected.sources[0].secret.name: Required value",
        ),
        pytest.param(
            {"projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}]}},
            "projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
        ),
        pytest.param(
            {
                "projected": {
                    "sources": [
                        {"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
                        {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
                    ]
                }
            },
            'projected: Invalid value: "c": conflicting duplicate paths',
        ),
        pytest.param({"configMap": {"name": "s", "items": None}}, ""),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_other_mistakes_of_a_volume_of_files_are_named(volume: Json, complaint: str) -> None:
    assert complaints(volume) == ([f"spec.volumes[0].{complaint}"] if complaint else [])


@pytest.mark.parametrize("field", ["subPath", "subPathExpr"])
@pytest.mark.parametrize(("path", "why"), [("/etc", ABSOLUTE), ("a/../..", BACKWARDS)])
def test_a_part_of_a_volume_lies_inside_it(field: str, path: str, why: str) -> None:
    where = f"spec.containers[0].volumeMounts[0].{field}"

    assert complaints({"emptyDir": {}}, **{field: path}) == [f'{where}: Invalid value: "{path}": {why}']


def test_a_mount_names_its_part_once() -> None:
    (complaint,) = complaints({"emptyDir": {}}, subPath="a", subPathExpr="$(B)")

    assert complaint.endswith('subPathExpr: Invalid value: "$(B)": subPathExpr and subPath are mutually exclusive')


def test_templates_are_held_to_the_same_rules() -> None:
    pod = a_pod("one", "true", volumes=[{"name": "v", **volume_of("secret", "/etc/passwd")}])
    fill_pod(pod)

    causes = [str(cause) for cause in check_template(pod, "spec.template")]

    field = "spec.template.spec.volumes[0].secret.items[0].path"
    assert causes == [f'{field}: Invalid value: "/etc/passwd": {ABSOLUTE}']


@pytest.mark.parametrize(
    ("key", "why"), [("..data", "must not start with '..'"), ("..", "must not be '..'"), (".", "must not be '.'")]
)
@pytest.mark.parametrize("kind", ["/configmaps", "/secrets"])
def test_a_key_that_is_no_file_name_is_refused(kind: str, key: str, why: str) -> None:
    causes = BUILTIN_POLICIES[kind].check({"type": "Opaque", "data": {key: ""}})

    assert [str(cause) for cause in causes] == [f'data[{key}]: Invalid value: "{key}": {why}']


@pytest.mark.parametrize("path", ["/etc/x", "../x", "a/../../x", "..data", "..data_tmp/x", "", ".", "a/..", ".."])
def test_publishing_never_leaves_its_directory(tmp_path: Path, path: str) -> None:
    directory = tmp_path / "deep" / "volume"
    publish(directory, {"a": File(b"old", 0o644)})
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(OSError, match="path"):
        publish(directory, {"a": File(b"new", 0o644), path: File(b"bad", 0o644)})

    assert sorted(tmp_path.rglob("*")) == before
    assert (directory / "a").read_bytes() == b"old"


def test_a_file_that_is_also_a_directory_is_an_error_that_leaves_the_old_files(tmp_path: Path) -> None:
    publish(tmp_path, {"a": File(b"old", 0o644)})
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(OSError, match="Not a directory"):
        publish(tmp_path, {"a": File(b"1", 0o644), "a/b": File(b"2", 0o644)})

    assert sorted(tmp_path.rglob("*")) == before


def test_published_files_have_their_mode_and_no_more_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        publish(tmp_path, {"a": File(b"", 0o600), "b": File(b"", 0o4755)})
    finally:
        os.umask(before)

    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o600
    assert (tmp_path / "b").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    ("name", "encoded"),
    [("main", "main"), ("..", "%2E%2E"), ("../../x", "..%2F..%2Fx"), ("", "%"), ("/etc", "%2Fetc"), ("a.b", "a.b")],
)
def test_any_name_is_one_step_of_a_path(name: str, encoded: str) -> None:
    assert beneath.step(name) == encoded


def test_a_volume_named_like_a_path_stays_in_the_pods_directory(tmp_path: Path) -> None:
    volumes = Volumes(PodWorld(), tmp_path / "pod" / "volumes", lambda *_: "")
    pod = a_pod("one", "true", volumes=[{"name": "../../out", "emptyDir": {}}])

    asyncio.run(volumes.prepare(pod, {}, ""))

    assert [path.name for path in tmp_path.iterdir()] == ["pod"]
    assert [path.name for path in (tmp_path / "pod").iterdir()] == ["volumes"]


@pytest.mark.parametrize("part", ["..", "a/../..", "link", "loop", "file/x"])
def test_a_part_of_a_volume_never_leads_out_of_it(tmp_path: Path, part: str) -> None:
    volume = tmp_path / "volumes" / "v"
    volume.mkdir(parents=True)
    (volume / "link").symlink_to(tmp_path)
    (volume / "loop").symlink_to("loop")
    (volume / "file").touch()
    volumes = Volumes(PodWorld(), tmp_path / "volumes", lambda *_: "")
    container = a_container("true", volumeMounts=[{"name": "v", "mountPath": "/v", "subPath": part}])
    asyncio.run(volumes.prepare(a_pod("one", "true", volumes=[{"name": "v", "emptyDir": {}}]), {}, ""))
    before = sorted(tmp_path.rglob("*"))

    with pytest.raises(VolumeError, match="subPath"):
        volumes.mounts(container, {})

    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_that_a_pod_puts_in_the_way_after_the_check_is_not_followed(tmp_path: Path) -> None:
    volume, secret = tmp_path / "volume", tmp_path / "secret"
    (volume / "part" / "inner").mkdir(parents=True)
    (secret / "inner").mkdir(parents=True)
    mount: spawn_mounts.Mount = {
        "source": str(volume / "part" / "inner"),
        "target": "/v",
        "read_only": False,
        "within": str(volume),
    }
    os.close(spawn_mounts._opened(mount))

    (volume / "part").rename(volume / "gone")
    (volume / "part").symlink_to(secret)

    with pytest.raises(OSError, match="Not a directory|link"):
        spawn_mounts._opened(mount)
    (volume / "part").unlink()
    (volume / "part").mkdir()
    (volume / "part" / "inner").symlink_to(secret)
    with pytest.raises(OSError, match="has become a link"):
        spawn_mounts._opened(mount)


class CountedWorld(PodWorld):
    """Counts how often the ConfigMap of a volume was asked for."""

    asked = 0

    async def get(self, kind: str, namespace: str, name: str) -> Json | None:
        type(self).asked += kind == "ConfigMap"
        return await super().get(kind, namespace, name)


@pytest.mark.parametrize(
    ("key", "path"), [("k", "../../../../escaped"), ("k", "/no/such/directory"), ("../../escaped", "")]
)
def test_a_stored_pod_whose_volume_leads_out_says_so_once_and_backs_off(
    tmp_path: Path, key: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    source: dict[str, Any] = {"name": "settings", **({"items": [{"key": key, "path": path}]} if path else {})}

    async def main() -> CountedWorld:
        world = CountedWorld()
        CountedWorld.asked = 0
        world.add("ConfigMap", {"metadata": {"name": "settings"}, "data": {key: "x"}})
        world.add("Pod", a_pod("one", "true", volumes=[{"name": "v", "configMap": source}]))
        async with running(world, tmp_path / "root", NO_SANDBOX, timing=Timing()):
            await asyncio.sleep(3600)
        return world

    world = clock.run(main())

    (event,) = (event for event in world.events if event.reason == "FailedMount")
    assert event.message.startswith("MountVolume.SetUp failed: volume 'v': path ")
    assert CountedWorld.asked < 30  # within an hour
    assert "Traceback" not in caplog.text
    assert not list(tmp_path.rglob("escaped"))


def test_a_pod_whose_worker_fails_says_so_and_backs_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[float] = []

    async def fail(*_: object) -> None:
        tries.append(asyncio.get_running_loop().time())
        raise RuntimeError("no such luck")

    monkeypatch.setattr(Volumes, "prepare", fail)

    async def main() -> PodWorld:
        world = PodWorld()
        world.add("Pod", a_pod("one", "true"))
        async with running(world, tmp_path, NO_SANDBOX, timing=Timing()):
            await asyncio.sleep(3600)
        return world

    world = clock.run(main())

    assert {event.reason for event in world.events} == {"FailedSync"}
    assert world.events[0].message == "Error syncing pod, next try in 2s: RuntimeError: no such luck"
    assert [round(later - now) for now, later in zip(tries, tries[1:6], strict=False)] == [2, 4, 8, 16, 32]
    assert len(tries) < 25


def test_what_waiting_does_not_mend_is_told_from_what_may_still_come(tmp_path: Path) -> None:
    def error_of(volume: Json) -> VolumeError:
        volumes = Volumes(PodWorld(), tmp_path, lambda *_: "")
        with pytest.raises(VolumeError) as raised:
            asyncio.run(volumes.prepare(a_pod("one", "true", volumes=[{"name": "v", **volume}]), {}, ""))
        return raised.value

    assert isinstance(error_of(volume_of("projected.token", "/x")), BadVolumeError)
    assert not isinstance(error_of({"configMap": {"name": "absent"}}), BadVolumeError)
