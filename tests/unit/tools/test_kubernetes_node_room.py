"""What a room for a real node does to the machine, as far as it can be seen without root."""

import pytest
from tools.kubernetes import node_room
from tools.kubernetes.binaries import Unavailable


@pytest.fixture
def groups(tmp_path):
    made = [tmp_path / name / node_room.CGROUP for name in ("cpu", "memory")]
    for group in made:
        (group / "kubepods" / "pod1").mkdir(parents=True)
    return made


def test_control_groups_are_removed_with_all_that_is_in_them_and_nothing_else(groups, tmp_path):
    node_room.remove(groups)

    assert sorted(path.name for path in tmp_path.rglob("*")) == ["cpu", "memory"]


def test_a_control_group_that_stays_in_use_is_named(groups, monkeypatch):
    (groups[1] / "kubepods" / "process").touch()
    monkeypatch.setattr(node_room, "PATIENCE", 0.0)

    with pytest.raises(Unavailable, match=f"{groups[1]} is still in use"):
        node_room.remove(groups)


def test_a_second_room_is_refused_while_there_is_one(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    with node_room.alone(), pytest.raises(Unavailable, match="another node runs on this machine"), node_room.alone():
        pass


def test_without_root_it_is_said_what_is_needed(monkeypatch, capsys):
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    status = node_room.main(["true"])

    assert (status, capsys.readouterr().err.startswith("node: a real node needs root")) == (1, True)
