"""A cluster's directory is its owner's alone; what another user could have planted there is refused."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.cluster.otheruser import IS_ROOT, OTHER, a_common_directory, as_other, readable_by_others

from trainmaster.cli.connection import Choice, Failure, config_of
from trainmaster.cli.home import running_in, start_of, write_record
from trainmaster.cluster.cluster import Cluster, ClusterOptions
from trainmaster.cluster.kubelet import leftovers
from trainmaster.cluster.storage import private
from trainmaster.cluster.storage.private import UntrustedError

ME = os.geteuid()


@pytest.fixture
def common() -> Iterator[Path]:
    with a_common_directory() as directory:
        yield directory


def anothers(common: Path) -> Path:
    """A directory of another user's; for an ordinary user one of root's."""
    if not IS_ROOT:
        return Path("/usr/share")
    directory = common / "anothers"
    directory.mkdir(mode=0o755)
    os.chown(directory, OTHER, OTHER)
    return directory


def mode_of(path: Path) -> int:
    return path.lstat().st_mode & 0o7777


def test_a_new_directory_and_those_above_it_are_closed_whatever_the_umask(common: Path) -> None:
    before = os.umask(0)
    try:
        repaired = private.prepare(common / "a" / "b" / "home")
    finally:
        os.umask(before)

    assert repaired == []
    assert [mode_of(common / path) for path in ("a", "a/b", "a/b/home")] == [0o700] * 3


def test_an_empty_directory_that_is_open_to_others_is_closed(common: Path) -> None:
    home = common / "home"
    home.mkdir(mode=0o755)

    assert private.prepare(home) == []
    assert mode_of(home) == 0o700


def test_a_cluster_that_was_open_to_others_is_closed_and_its_owner_is_told(common: Path) -> None:
    home = common / "home"
    (home / "pki").mkdir(parents=True)
    for name in ("kubeconfig", "pki/admin.token", "cluster.log", "objects.db"):
        (home / name).write_text("secret")
        (home / name).chmod(0o644)
    for path in (home, home / "pki"):
        path.chmod(0o755)
    assert str(home / "pki" / "admin.token") in readable_by_others(home)

    (told,) = private.prepare(home)

    assert told.startswith(f"{home} was open to other users (mode 0755) and is closed to them now; they may have read")
    assert f"remove {home / 'pki'}" in told
    assert readable_by_others(home) == []
    assert mode_of(home / "pki") == 0o700
    assert {mode_of(home / name) for name in ("kubeconfig", "pki/admin.token", "cluster.log", "objects.db")} == {0o600}
    assert private.prepare(home) == []


def test_a_directory_with_other_things_that_is_open_to_others_is_left_as_it_is(common: Path) -> None:
    (common / "project.py").touch()

    with pytest.raises(UntrustedError, match=f"{common} is open to other users .mode 0755. and holds something else"):
        private.prepare(common)

    assert mode_of(common) == 0o755


def test_another_users_directory_is_refused_with_its_owner(common: Path) -> None:
    home = anothers(common)

    with pytest.raises(UntrustedError) as refused:
        private.prepare(home)

    assert str(refused.value).startswith(f"{home} belongs to user ")
    assert str(refused.value).endswith(": choose another place")


@pytest.mark.parametrize("name", ["kubeconfig", "pki/admin.token", "objects.db", "sandbox.json", "pods"])
def test_what_another_user_planted_is_refused_by_its_path(common: Path, name: str) -> None:
    home = common / "home"
    (home / name).parent.mkdir(parents=True)
    home.chmod(0o700)
    (home / name).write_text("planted")
    if not IS_ROOT:  # cannot plant as another: what an ordinary user sees then is a link to root's
        (home / name).unlink()
        (home / name).symlink_to("/etc/passwd")
    else:
        os.chown(home / name, OTHER, OTHER)

    with pytest.raises(UntrustedError) as refused:
        private.prepare(home)

    assert refused.value.problem.startswith(f"{home / name} ")
    assert refused.value.remedy == f"remove {home / name}"


@pytest.mark.parametrize("name", ["kubeconfig", "pki/admin.token", "cluster.log"])
def test_a_link_in_the_place_of_a_file_is_neither_followed_nor_written_through(common: Path, name: str) -> None:
    home, victim = common / "home", common / "victim"
    victim.write_text("precious")
    (home / name).parent.mkdir(parents=True)
    home.chmod(0o700)
    (home / name).symlink_to(victim)

    with pytest.raises(UntrustedError, match="is a symbolic link"):
        private.prepare(home)
    with pytest.raises(OSError, match="symbolic link"):
        os.close(private.open_private(home / name, os.O_WRONLY | os.O_APPEND))
    private.replace(home / name, b"new")

    assert victim.read_text() == "precious"
    assert (home / name).read_text() == "new"
    assert mode_of(home / name) == 0o600


def test_a_link_of_ones_own_to_a_directory_elsewhere_is_taken(common: Path) -> None:
    (common / "disk").mkdir(mode=0o700)
    (common / "data").mkdir()
    (common / "home").symlink_to("disk")
    (common / "disk" / "volumes").symlink_to(common / "data")

    assert private.prepare(common / "home") == []


@pytest.mark.parametrize("above", [".", "deep/er"])
def test_a_directory_above_where_everybody_may_replace_it_is_refused(common: Path, above: str) -> None:
    place = common / above
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(0o777)

    with pytest.raises(UntrustedError) as refused:
        private.prepare(place / "home")

    whole = (place / "home").absolute()
    assert str(refused.value) == (
        f"{whole} lies in {place}, where every user may replace files (mode 0777): chmod o-w {place}, "
        "or choose another place"
    )
    assert not whole.exists()
    place.chmod(0o1777)
    assert private.prepare(place / "home") == []


def test_a_temporary_directory_is_the_administrators_choice(common: Path) -> None:
    common.chmod(0o777)

    assert private.prepare(common / "home", checks_way=False) == []


def test_a_link_on_the_way_is_looked_at_where_it_leads(common: Path) -> None:
    (common / "open").mkdir()
    (common / "open").chmod(0o777)
    (common / "link").symlink_to("open/../open")

    with pytest.raises(UntrustedError, match=f"lies in {common}/open, where every user may replace files"):
        private.prepare(common / "link" / "home")


def test_a_loop_of_links_ends(common: Path) -> None:
    (common / "loop").symlink_to("loop")

    with pytest.raises(OSError, match="symbolic links"):
        private.prepare(common / "loop" / "home")


def test_the_record_of_another_user_names_no_cluster(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`down` would end whatever process it names, and every verb would take its kubeconfig."""
    home = common / "trainmaster" / "cluster"
    home.mkdir(parents=True)
    record = home / "cluster.json"
    record.write_text(json.dumps({"pid": os.getpid(), "started": start_of(os.getpid())}))
    if IS_ROOT:
        os.chown(record, OTHER, OTHER)
    else:
        monkeypatch.setattr(private, "_is_trusted", lambda user: user == 0)
    monkeypatch.setenv("XDG_DATA_HOME", str(common))
    monkeypatch.delenv("KUBECONFIG", raising=False)

    with pytest.raises(UntrustedError, match=f"{record} belongs to user"):
        running_in(home)
    with pytest.raises(Failure, match="name your cluster's kubeconfig with --kubeconfig FILE"):
        config_of(Choice(), {})


def test_the_record_is_not_written_through_a_link(common: Path) -> None:
    victim = common / "victim"
    victim.write_text("precious")
    for name in ("cluster.json", "cluster.new", f".cluster.json.{os.getpid()}"):
        (common / name).symlink_to(victim)

    write_record(common)

    assert victim.read_text() == "precious"
    assert running_in(common) is not None


def test_a_dead_clusters_directory_is_removed_only_if_it_is_our_own(common: Path, monkeypatch) -> None:
    planted = common / "trainmaster-planted"
    planted.mkdir()
    (planted / "temporary.lock").touch()
    if IS_ROOT:
        os.chown(planted, OTHER, OTHER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: ME + 1)

    assert leftovers.remove_dead(common) == []
    assert planted.exists()


@pytest.mark.sandbox
def test_nobody_else_can_read_what_a_cluster_keeps_even_where_its_directory_was_open(common: Path) -> None:
    home = common / "home"
    home.mkdir(mode=0o777)
    before = os.umask(0)

    async def main() -> list[str]:
        cluster = Cluster(ClusterOptions(home, sandbox="ports"))
        async with cluster.running():
            assert cluster.kubeconfig.exists()
            return readable_by_others(home)

    try:
        assert asyncio.run(main()) == []
    finally:
        os.umask(before)
    assert {mode_of(home / name) for name in ("kubeconfig", "pki/admin.token", "objects.db", "helper.log")} == {0o600}


@pytest.mark.parametrize("verb", [("up",), ("up", "-d")], ids=["foreground", "detached"])
def test_up_refuses_a_directory_that_was_planted(common: Path, verb: tuple[str, ...]) -> None:
    home = anothers(common)

    done = subprocess.run(
        [sys.executable, "-m", "trainmaster", *verb, "--data-dir", str(home)],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"trainmaster up: {home} belongs to user ")
    assert told.endswith("choose another place with --data-dir")
    assert "Traceback" not in done.stderr
    assert not list(home.glob("pki"))


if IS_ROOT:  # only root can become another user

    def test_another_user_reads_an_open_directory_before_it_is_repaired_and_not_after(common: Path) -> None:
        (common / "home" / "pki").mkdir(parents=True)
        (common / "home" / "pki" / "admin.token").write_text("secret")
        (common / "home" / "pki" / "admin.token").chmod(0o644)

        def read() -> str:
            try:
                return (common / "home" / "pki" / "admin.token").read_text()
            except PermissionError:
                return "refused"

        before = as_other(read)
        private.prepare(common / "home")

        assert (before, as_other(read)) == ("secret", "refused")

    def test_a_link_of_another_user_in_a_sticky_directory_is_not_followed(common: Path) -> None:
        (common / "target").mkdir()
        common.chmod(0o1777)

        def plant() -> str:
            (common / "link").symlink_to(common / "target")
            return "planted"

        assert as_other(plant) == "planted"

        with pytest.raises(UntrustedError, match=f"{common}/link belongs to user"):
            private.prepare(common / "link" / "home")
