import sys
from pathlib import Path

import pytest
import yaml

from trainmaster.cluster.kubelet.images import ImageError, ImageMapping, Images, ResolvedImage, parse_option


@pytest.fixture
def base(tmp_path):
    """A directory with an environment, an interpreter in it, sources and a program."""
    programs = tmp_path / "venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python3").symlink_to(sys.executable)
    (tmp_path / "src").mkdir()
    (tmp_path / "train.sh").write_text("#!/bin/sh\n")
    (tmp_path / "train.sh").chmod(0o755)
    (tmp_path / "notes.txt").write_text("plain\n")
    return tmp_path


def images_of(text, base):
    return Images.from_config(yaml.safe_load(text), base / "trainmaster.yaml")


def test_an_entry_says_all_about_an_image(base):
    images = images_of(
        """
        images:
        - match: "docker.io/kubeflow/*"
          python: ./venv
          files: {"/var/tf_mnist/": ./src}
          entrypoint: ["python", "/examples/train.py"]
          command: ["--epochs", 1]
          env: {THREADS: 1, MODE: fast}
          workdir: /examples
        """,
        base,
    )

    image = images.resolve("kubeflow/tf-mnist:v1")

    assert image == ResolvedImage(
        "kubeflow/tf-mnist:v1",
        path_prefix=(base / "venv" / "bin",),
        overlays={"/var/tf_mnist": base / "src"},
        entrypoint=("python", "/examples/train.py"),
        cmd=("--epochs", "1"),
        env={"THREADS": "1", "MODE": "fast"},
        workdir="/examples",
        match="docker.io/kubeflow/*",
    )


def test_an_unmapped_image_has_the_current_interpreter_first():
    image = Images().resolve("busybox")

    assert image.path_prefix == (Path(sys.executable).parent,)
    assert not image.is_mapped
    assert image.argv(["sh", "-c"], ["true"]) == ["sh", "-c", "true"]


@pytest.mark.parametrize("data", [None, {}, {"images": None}, {"images": []}, {"other": 1}])
def test_no_mapping_is_fine(data, base):
    assert Images.from_config(data, base / "trainmaster.yaml").mappings == ()


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("busybox", "busybox"),
        ("busybox", "busybox:1.36"),
        ("busybox", "docker.io/library/busybox:1.36"),
        ("docker.io/library/busybox", "busybox"),
        ("kubeflow/*", "docker.io/kubeflow/mnist:v1"),
        ("docker.io/kubeflow/*", "kubeflow/mnist"),
        ("*/mnist:v1", "kubeflow/mnist:v1"),
        ("registry.local:5000/team/*", "registry.local:5000/team/train:v1"),
        ("registry.local:5000/team/train", "registry.local:5000/team/train:v1"),
        ("gcr.io/team/train", "gcr.io/team/train@sha256:0123"),
        ("*", "anything/at:all"),
    ],
)
def test_a_pattern_matches(pattern, image):
    assert Images([ImageMapping(pattern)]).resolve(image).is_mapped


@pytest.mark.parametrize(
    ("pattern", "image"),
    [
        ("busybox:1.35", "busybox:1.36"),
        ("kubeflow/*", "gcr.io/kubeflow/mnist"),
        ("busybox", "team/busybox"),
        ("mnist", "mnist-large"),
    ],
)
def test_a_pattern_does_not_match(pattern, image):
    assert not Images([ImageMapping(pattern)]).resolve(image).is_mapped


def test_the_longest_pattern_wins_and_of_equal_ones_the_last():
    images = Images(
        [
            ImageMapping("kubeflow/mnist", workdir="/long"),
            ImageMapping("*", workdir="/any"),
            ImageMapping("kubeflow/*", workdir="/first"),
            ImageMapping("kubeflow/*", workdir="/second"),
        ]
    )

    found = [images.resolve(name).workdir for name in ("kubeflow/mnist", "kubeflow/other", "other")]

    assert found == ["/long", "/second", "/any"]


def test_entries_that_match_complete_each_other():
    files = ImageMapping("kubeflow/*", overlays={"/app": Path("/src")}, env={"A": "1", "B": "1"})
    option = ImageMapping("kubeflow/*", path_prefix=(Path("/venv/bin"),), env={"B": "2"})

    found = Images([files, option]).resolve("kubeflow/mnist")

    assert found.overlays == {"/app": Path("/src")}
    assert found.path_prefix == (Path("/venv/bin"),)
    assert found.env == {"A": "1", "B": "2"}


@pytest.mark.parametrize(
    ("entrypoint", "cmd", "command", "args", "argv"),
    [
        (("python", "t.py"), ("--x",), [], [], ["python", "t.py", "--x"]),
        (("python", "t.py"), ("--x",), [], ["--y"], ["python", "t.py", "--y"]),
        (("python", "t.py"), ("--x",), ["sh"], [], ["sh"]),
        (("python", "t.py"), ("--x",), ["sh"], ["-e"], ["sh", "-e"]),
        (("python", "t.py"), ("--x",), [""], ["--y"], ["python", "t.py", "--y"]),
        (None, ("python", "t.py"), [], [], ["python", "t.py"]),
        (None, ("python", "t.py"), [], ["sh"], ["sh"]),
        ((), (), [], ["python", "t.py"], ["python", "t.py"]),
    ],
)
def test_commands_are_put_together_as_docker_does(entrypoint, cmd, command, args, argv):
    image = Images([ImageMapping("*", entrypoint=entrypoint, cmd=cmd)]).resolve("any")

    assert image.argv(command, args) == argv


@pytest.mark.parametrize(
    ("command", "args"),
    [
        pytest.param([], [], id="nothing"),
        pytest.param([""], [], id="empty command"),
        pytest.param([], ["--epochs=1"], id="args for an unknown entrypoint"),
    ],
)
def test_a_container_with_nothing_to_run_is_told_which_lines_to_add(command, args, base):
    image = Images().resolve("kubeflow/mnist:v1")

    with pytest.raises(ImageError) as caught:
        image.argv(command, args)

    _, _, lines = str(caught.value).partition("Add to trainmaster.yaml:\n")
    assert "image kubeflow/mnist:v1 is not pulled here" in str(caught.value)
    assert images_of(lines, base).resolve("kubeflow/mnist:v1").argv(command, args) == ["python", "train.py", *args]


@pytest.mark.parametrize(
    ("entrypoint", "args"),
    [pytest.param(None, ["--epochs=1"], id="no entrypoint"), pytest.param((), [], id="empty entrypoint")],
)
def test_a_mapping_without_an_entrypoint_is_told_which_line_it_lacks(entrypoint, args):
    image = Images([ImageMapping("kubeflow/*", entrypoint=entrypoint)]).resolve("kubeflow/mnist:v1")

    with pytest.raises(ImageError) as caught:
        image.argv([], args)

    assert str(caught.value) == (
        "the container has no command, image kubeflow/mnist:v1 is not pulled here, and the entry for it gives no "
        "entrypoint. Add the last line to that entry in trainmaster.yaml:\n"
        '- match: "kubeflow/*"\n'
        '  entrypoint: ["python", "train.py"]  # what the image would start'
    )


@pytest.mark.parametrize(
    ("value", "prefix", "entrypoint"),
    [
        pytest.param("./venv", "venv/bin", None, id="environment"),
        pytest.param("venv/bin/python3", "venv/bin", None, id="interpreter"),
        pytest.param("python train.py", None, ("python", "train.py"), id="command"),
        pytest.param("sh -c 'exit 3'", None, ("sh", "-c", "exit 3"), id="quoted"),
        pytest.param("./train.sh --fast", None, ("{base}/train.sh", "--fast"), id="program"),
    ],
)
def test_an_option_is_an_environment_or_a_command(value, prefix, entrypoint, base):
    mapping = parse_option(f"kubeflow/*={value}", base)

    assert mapping.match == "kubeflow/*"
    assert mapping.path_prefix == ((base / prefix,) if prefix else ())
    assert mapping.entrypoint == (entrypoint and tuple(word.format(base=base) for word in entrypoint))


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("./venv", "write PATTERN=VALUE"),
        ("=./venv", "write PATTERN=VALUE"),
        ("mnist=", "write PATTERN=VALUE"),
        ("mnist=./absent", "{base}/absent does not exist"),
        ("mnist=./src", "{base}/src has no bin/ directory"),
        ("mnist=sh -c 'x", "No closing quotation"),
    ],
)
def test_a_bad_option_says_what_would_be_right(option, told, base):
    with pytest.raises(ImageError) as caught:
        parse_option(option, base)

    assert str(caught.value).startswith(f"--image {option!r}: ")
    assert told.format(base=base) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[]", "is []; write a mapping, e.g."),
        ("images: {}", "images: is {}; write a list, e.g."),
        ("images: [busybox]", "images[0]: is 'busybox'; write a mapping with match"),
        ("images: [{python: ./venv}]", "images[0].match: is missing; name the image"),
        ("images: [{match: 7}]", "images[0].match: is 7; name the image"),
        (
            "images: [{match: a, pyton: ./venv}]",
            "images[0].pyton: there is no such field; known are match, python, files",
        ),
        ("images: [{match: a, python: ./absent}]", "images[0].python: is './absent'; {base}/absent does not exist"),
        ("images: [{match: a, python: ./src}]", "images[0].python: is './src'; {base}/src has no bin/ directory"),
        ("images: [{match: a, python: notes.txt}]", "images[0].python: is 'notes.txt'; {base}/notes.txt is no program"),
        ("images: [{match: a, files: ./src}]", "images[0].files: is './src'; write the image's path and yours"),
        ("images: [{match: a, files: {rel: ./src}}]", "images[0].files: is 'rel'; paths of the image start with /"),
        ("images: [{match: a, files: {/x: 7}}]", "images[0].files: is 7; give the path"),
        ("images: [{match: a, files: {/x: ./no}}]", "images[0].files: is './no'; {base}/no does not exist"),
        (
            "images: [{match: a, entrypoint: python t.py}]",
            "images[0].entrypoint: is 'python t.py'; write a list of words",
        ),
        ("images: [{match: a, env: [A=1]}]", "images[0].env: is ['A=1']; write names and values"),
        ("images: [{match: a, env: {A: true}}]", "images[0].env: is True; quote the value of A"),
        (
            "images: [{match: a, workdir: examples}]",
            "images[0].workdir: is 'examples'; paths of the image start with /",
        ),
    ],
)
def test_bad_configuration_names_place_value_and_remedy(text, told, base):
    with pytest.raises(ImageError) as caught:
        images_of(text, base)

    assert str(caught.value).startswith(f"{base}/trainmaster.yaml: " + told.replace("{base}", str(base)))


def test_all_problems_are_told_at_once(base):
    with pytest.raises(ImageError) as caught:
        images_of("images: [{match: a, workdir: x}, {match: b, env: 1, extra: 2}]", base)

    places = [line.split(": ")[1] for line in str(caught.value).splitlines()]
    assert places == ["images[0].workdir", "images[1].extra", "images[1].env"]


def test_a_delivery_of_kubectl_is_ours_unless_somebody_maps_it():
    image = "docker.io/mpioperator/kubectl-delivery:0.2.3"
    mine = ImageMapping("*delivery*", entrypoint=("deliver",))

    assert Images().resolve(image).argv([], []) == ["kubectl-delivery"]
    assert Images([mine]).resolve(image).argv([], []) == ["deliver"]


@pytest.mark.parametrize(("value", "is_real"), [("real", True), ("builtin", False)])
def test_an_image_may_have_the_ssh_of_the_machine(base, value, is_real):
    images = images_of(f"images: [{{match: mpi, sshd: {value}}}]", base)

    assert images.resolve("mpi").has_own_ssh is is_real
    assert images.resolve("other").has_own_ssh is False


def test_any_other_word_about_ssh_is_refused(base):
    with pytest.raises(ImageError, match=r"images\[0\].sshd: is 'yes'; write real"):
        images_of("images: [{match: mpi, sshd: 'yes'}]", base)
