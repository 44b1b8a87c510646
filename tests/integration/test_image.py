"""The image that is made without Docker: the same every time, and all that the operator needs is in it."""

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tools import image
from tools.image_archive import Layer
from tools.image_rootfs import needed

import trainmaster
from trainmaster.operator.install import USER

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text()


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    path = tmp_path_factory.mktemp("image") / "trainmaster.tar"
    image.build(path)
    return path


def member(archive, name):
    with tarfile.open(archive) as tar:
        content = tar.extractfile(name)
        assert content is not None
        return content.read()


@pytest.fixture(scope="module")
def table(archive):
    """The entry of Docker's manifest.json."""
    [entry] = json.loads(member(archive, "manifest.json"))
    return entry


@pytest.fixture(scope="module")
def root(archive, table, tmp_path_factory):
    """The image unpacked, layer over layer."""
    place = tmp_path_factory.mktemp("rootfs")
    place.chmod(0o755)
    for layer in table["Layers"]:
        with tarfile.open(fileobj=io.BytesIO(member(archive, layer))) as tar:
            tar.extraction_filter = lambda member, _path: member  # the argument `filter` came with 3.11.4
            tar.extractall(place)
    return place


def chrooted(test):
    """Root may change its root directory; whoever else does it in a namespace."""
    return test if os.getuid() == 0 else pytest.mark.namespaces(test)


def inside(root, *command):
    """As the image's user, with nothing of this machine but its kernel."""
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")  # users' PATH often lacks these
    assert chroot is not None
    user = [chroot, f"--userspec={USER}:{USER}"] if os.getuid() == 0 else ["unshare", "--map-root-user", chroot]
    path = {"PATH": os.environ["PATH"]}
    return subprocess.run([*user, str(root), *command], capture_output=True, text=True, check=False, env=path)


def test_the_same_machine_makes_the_same_bytes(archive, tmp_path):
    again = tmp_path / "again.tar"

    image.build(again)

    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(archive.read_bytes()).digest()


def test_a_layer_does_not_tell_when_where_and_by_whom_it_was_made(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name / "b").mkdir(parents=True)
        (tmp_path / name / "b" / "file").write_text("same")
        (tmp_path / name / "a").symlink_to("b/file")
    (tmp_path / "two" / "b" / "file").chmod(0o600)
    os.utime(tmp_path / "two" / "b" / "file", (1, 1))

    layers = [Layer.of(tmp_path / name, 7) for name in ("one", "two")]

    assert layers[0] == layers[1]


def test_the_config_names_entry_point_and_user(archive, table):
    config = json.loads(member(archive, table["Config"]))["config"]

    assert config["Entrypoint"] == ["/usr/local/bin/trainmaster"]
    assert config["User"] == f"{USER}:{USER}"
    assert table["RepoTags"] == [f"docker.io/library/trainmaster:{trainmaster.__version__}"]


def test_what_the_tables_of_contents_name_is_there(archive, table):
    [found] = json.loads(member(archive, "index.json"))["manifests"]
    manifest = json.loads(member(archive, f"blobs/sha256/{found['digest'].removeprefix('sha256:')}"))
    config = json.loads(member(archive, table["Config"]))

    digests = [layer["digest"] for layer in manifest["layers"]]

    assert digests == config["rootfs"]["diff_ids"]
    assert [f"blobs/sha256/{digest.removeprefix('sha256:')}" for digest in digests] == table["Layers"]
    for descriptor in (*manifest["layers"], manifest["config"]):
        content = member(archive, f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}")
        assert f"sha256:{hashlib.sha256(content).hexdigest()}" == descriptor["digest"]
        assert len(content) == descriptor["size"]


@chrooted
def test_it_runs_on_nothing_but_itself(root):
    done = inside(root, image.ENTRYPOINT, "--version")

    assert (done.returncode, done.stdout) == (0, f"trainmaster {trainmaster.__version__}\n"), done.stderr


@chrooted
def test_it_can_make_the_installation(root):
    done = inside(root, image.ENTRYPOINT, "manifests")

    assert done.returncode == 0, done.stderr
    assert "kind: Deployment" in done.stdout


@chrooted
def test_everything_the_operator_imports_is_in_it(root):
    program = "import ssl, aiohttp, cryptography.x509, trainmaster.operator.main, trainmaster.operator.webhook"

    done = inside(root, "/usr/local/bin/python3", "-c", program)

    assert done.returncode == 0, done.stderr


def test_it_has_no_shell_and_nothing_of_its_user_can_be_changed(root):
    names = {path.name for path in root.rglob("*") if path.is_file() and "bin" in path.parts}

    assert names == {"trainmaster", "python3", next(name for name in names if name.startswith("python3."))}
    assert {path for path in root.rglob("*") if path.stat(follow_symlinks=False).st_uid == USER} == set()


def test_it_is_compiled_already(root):
    sources = sorted((root / "usr/local/lib").rglob("trainmaster/operator/*.py"))

    compiled = {path.name.partition(".")[0] for path in sources[0].parent.glob("__pycache__/*.pyc")}

    assert compiled == {path.stem for path in sources}


def test_the_dockerfile_makes_the_same_sort_of_image():
    last = DOCKERFILE[DOCKERFILE.rindex("\nFROM ") :]

    assert f'ENTRYPOINT ["{image.ENTRYPOINT}"]' in last
    assert f"USER {USER}:{USER}" in last
    assert last.startswith("\nFROM scratch\n")
    assert f"SOURCE_DATE_EPOCH={image.EPOCH}" in DOCKERFILE


def test_every_package_in_the_image_is_pinned_and_new_enough():
    lines = (ROOT / "tools" / "image_requirements.txt").read_text().splitlines()
    pins = dict(line.split("==") for line in lines if line and not line.startswith("#"))

    missing = {found.name.lower().replace("_", "-") for found in needed("trainmaster")} - pins.keys()
    direct = [Requirement(line) for line in requires("trainmaster") or () if "extra ==" not in line]

    assert not missing
    assert all(requirement.specifier.contains(pins[requirement.name.lower()]) for requirement in direct)


@pytest.mark.parametrize("source", sorted(set(re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE))))
def test_what_the_dockerfile_copies_is_let_through(source):
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}

    for path in source.split():
        assert (ROOT / path).exists()
        assert path.partition("/")[0] in let_through
