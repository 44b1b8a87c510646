"""Mounts below directories that are closed to the user whose pods these are."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.cluster.kubelet import spawn_mounts
from trainmaster.cluster.kubelet.launcher import ContainerConfig, Mount
from trainmaster.cluster.kubelet.logfiles import Selection, read
from trainmaster.cluster.kubelet.sandbox import NamespaceSandbox, PodConfig

pytestmark = [pytest.mark.sandbox, pytest.mark.namespaces]

SOMEBODY_ELSE = 12345


def a_closed_directory(root: Path) -> Path:
    """One that a pod of ours may not enter: another user's, which only root can make."""
    if os.geteuid() != 0:
        return Path("/root")
    closed = root / "closed"
    (closed / "inner").mkdir(parents=True)
    closed.chmod(0o700)
    os.chown(closed, SOMEBODY_ELSE, SOMEBODY_ELSE)
    return closed


def output_of(root: Path, text: str, mounts: list[Mount], cwd: str = "") -> str:
    """What a shell script prints in a pod of an ordinary user."""

    async def main() -> None:
        sandbox = await NamespaceSandbox.open(root, user_namespace=True)
        try:
            hosts = root / "hosts"
            hosts.write_text("127.0.0.1 localhost\n")
            config = PodConfig(uid="one", namespace="default", name="one", hostname="one", hosts=hosts)
            pod = await sandbox.create(config)
            env = {"PATH": os.environ["PATH"]}
            log = root / "log"
            container = ContainerConfig(
                name="one/main", argv=["sh", "-c", text], env=env, log=log, mounts=mounts, cwd=cwd
            )
            process = await sandbox.start(pod, container)
            await process.wait()
            process.close()
        finally:
            await sandbox.close()

    asyncio.run(main())
    return read(root / "log", Selection()).decode()


def a_volume(root: Path, name: str) -> Path:
    volume = root / name
    volume.mkdir()
    (volume / "file").write_text(f"{name}\n")
    return volume


def test_a_volume_appears_below_a_directory_that_the_user_may_not_enter(tmp_path: Path) -> None:
    closed, keys = a_closed_directory(tmp_path), a_volume(tmp_path, "keys")
    mounts = [
        Mount(str(keys), f"{closed}/.ssh", read_only=True),
        Mount(str(a_volume(tmp_path, "deep")), f"{closed}/a/b"),
        Mount(str(keys / "file"), f"{closed}/.netrc"),
    ]
    reads = f"cd {closed}; cat .ssh/file a/b/file .netrc"
    writes = "touch .ssh/x 2> /dev/null || echo refused; echo new > a/b/new"

    seen = output_of(tmp_path, f"{reads}; {writes}; ls -A", mounts)

    assert seen.splitlines()[:3] == ["keys", "deep", "keys"]
    assert seen.splitlines()[-4:] == ["refused", ".netrc", ".ssh", "a"]
    assert (tmp_path / "deep" / "new").read_text() == "new\n"


def test_a_container_starts_in_a_directory_that_the_user_may_not_enter(tmp_path: Path) -> None:
    closed = a_closed_directory(tmp_path)

    assert output_of(tmp_path, "pwd; touch here; ls", [], str(closed)) == f"{closed}\nhere\n"
    assert output_of(tmp_path, "pwd; ls", [], f"{closed}/inner").endswith(f"{closed}/inner\n")


def test_a_closed_directory_within_a_volume_takes_another_volume(tmp_path: Path) -> None:
    closed = a_closed_directory(tmp_path)
    outer = Mount(str(closed.parent), "/outer")
    inner = Mount(str(a_volume(tmp_path, "keys")), f"/outer/{closed.name}/keys")

    assert output_of(tmp_path, f"cat {inner.target}/file", [inner, outer]) == "keys\n"


def test_directories_on_the_way_to_a_volume_are_for_every_user_whatever_our_umask(tmp_path: Path) -> None:
    volume = Mount(str(a_volume(tmp_path, "keys")), "/no-such-place/deep/keys")
    before = os.umask(0o077)
    try:
        seen = output_of(tmp_path, "stat -c %a / /no-such-place /no-such-place/deep", [volume])
    finally:
        os.umask(before)

    assert seen == "755\n755\n755\n"


def test_a_directory_without_a_mount_in_it_stays_closed(tmp_path: Path) -> None:
    closed = a_closed_directory(tmp_path)

    assert "denied" in output_of(tmp_path, f"ls {closed}", [])


NAMES = """
import os, sys
from trainmaster.cluster.kubelet import linux, spawn_mounts
if os.geteuid() == 0:
    linux.unshare(linux.NEWUSER)  # root there, but not over files that are nobody's there: modes hold as for others
print(*sorted(spawn_mounts.names_in(sys.argv[1], ["me", "gone"])))
"""


@pytest.mark.parametrize(
    ("mode", "names"),
    [
        pytest.param(0o700, ["me", "other"], id="open"),
        pytest.param(0o300, ["me"], id="not to be listed"),
        pytest.param(0o400, [], id="not to be entered"),
        pytest.param(0o000, [], id="closed"),
    ],
)
def test_of_a_directory_the_entries_are_taken_that_the_user_may_use(
    tmp_path: Path, mode: int, names: list[str]
) -> None:
    directory = tmp_path / "home"
    for name in ("me", "other"):
        (directory / name).mkdir(parents=True)
    directory.chmod(mode)

    done = subprocess.run([sys.executable, "-c", NAMES, str(directory)], capture_output=True, text=True, timeout=60)
    directory.chmod(0o700)

    assert done.stdout.split() == names, done.stderr


def test_known_below_a_directory_are_the_ways_to_the_users_home_and_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/people/me")
    monkeypatch.setattr(sys, "executable", "/srv/tools/venv/bin/python")

    assert spawn_mounts.ways_below("/srv") == ["people", "tools"]
    assert spawn_mounts.ways_below("/srv/people") == ["me"]
    assert spawn_mounts.ways_below("/srv/peop") == []


@pytest.mark.parametrize("is_directory", [True, False], ids=["directory", "file"])
def test_a_mount_point_that_another_container_makes_at_the_same_time_serves_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_directory: bool
) -> None:
    table = spawn_mounts._Table()
    table._volumes.append(str(tmp_path))
    make = spawn_mounts._make

    def make_as_another_does(path: str, is_directory: bool) -> None:
        make(path, is_directory)
        make(path, is_directory)

    monkeypatch.setattr(spawn_mounts, "_make", make_as_another_does)

    point = table.point(str(tmp_path / "shared"), is_directory=is_directory)

    assert Path(point).is_dir() == is_directory
    assert Path(point).exists()
