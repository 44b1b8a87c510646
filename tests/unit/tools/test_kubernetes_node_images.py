"""The archive of images for a real node: what `ctr images import` finds in it."""

import hashlib
import io
import json
import tarfile

import pytest
from tools.kubernetes import node_images, node_packages


@pytest.fixture
def archive(tmp_path, monkeypatch):
    root, programs = tmp_path / "root", tmp_path / "programs"
    for file in (root / "usr/bin/busybox", root / "usr/bin/cat", programs / "rank.py", tmp_path / "kubectl"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file.name)
    (root / "bin").symlink_to("usr/bin")
    monkeypatch.setattr(node_packages, "tree", lambda packages: root)
    monkeypatch.setattr(node_images, "node_binaries", lambda: {"kubectl": tmp_path / "kubectl"})
    with tarfile.open(node_images.archive(tmp_path, programs)) as opened:
        yield opened


def content(archive, name):
    return archive.extractfile(name).read()


def images(archive):
    return {entry["RepoTags"][0]: entry for entry in json.loads(content(archive, "manifest.json"))}


def layers(archive, image):
    for name in images(archive)[image]["Layers"]:
        with tarfile.open(fileobj=io.BytesIO(content(archive, name))) as layer:
            yield {member.name: member for member in layer}


def test_every_layer_is_named_by_what_it_holds_and_known_to_its_image(archive):
    for entry in images(archive).values():
        digests = [hashlib.sha256(content(archive, name)).hexdigest() for name in entry["Layers"]]

        assert [f"{digest}.tar" for digest in digests] == entry["Layers"]
        config = json.loads(content(archive, entry["Config"]))
        assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}" for digest in digests]


def test_a_shared_layer_is_there_once(archive):
    found = images(archive)

    assert found[node_images.RANKS]["Layers"][0] == found[node_images.DELIVERY]["Layers"][0]
    assert len(set(archive.getnames())) == len(archive.getnames())


def test_ranks_find_their_programs_and_keep_the_packages_own_tools(archive):
    base, programs = layers(archive, node_images.RANKS)

    assert "programs/rank.py" in programs
    assert base["usr/bin/cat"].isreg()
    assert base["usr/bin/grep"].linkname == "busybox"
    assert base["bin"].linkname == "usr/bin"


def test_the_key_of_the_ssh_server_is_for_its_eyes_only(archive):
    base, _ = layers(archive, node_images.RANKS)

    key = base["etc/ssh/ssh_host_ed25519_key"]
    assert (key.mode, key.uid) == (0o600, 0)
