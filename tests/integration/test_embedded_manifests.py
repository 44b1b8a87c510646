"""What `run` does with manifests, seen from outside: names, namespaces, what jobs use, and clusters that are kept."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.integration.bed import a_job, processes
from tests.integration.commands import said, started, trainmaster

from trainmaster.testing.patience import PATIENCE

pytestmark = pytest.mark.sandbox

NAMED = {"name": "script"}


def a_script(code: str, **metadata: str) -> dict[str, Any]:
    container = {"command": ["python", "-c", code]}
    job = a_job("JAXJob", "script", "", restart="Never", container=container, replicas={"Worker": 1})
    return {**job, "metadata": metadata or NAMED}


def written(*bodies: dict[str, Any]) -> str:
    return yaml.safe_dump_all(bodies)


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster that stays up."""
    home = tmp_path_factory.mktemp("manifests") / "cluster"
    brought = trainmaster("up", "-d", "--data-dir", home)
    assert brought.returncode == 0, brought.stderr
    yield home / "kubeconfig"
    assert trainmaster("down", "--data-dir", home).returncode == 0


def test_a_second_run_uses_what_the_manifest_says_then(up):
    volumes = [{"name": "code", "configMap": {"name": "code"}}]
    container = {
        "command": ["python", "/code/main.py"],
        "volumeMounts": [{"name": "code", "mountPath": "/code"}],
    }
    job = a_job("JAXJob", "edited", "", pod={"volumes": volumes}, container=container, replicas={"Worker": 1})
    config: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "code"}}
    first = trainmaster(
        "run", "-", "--kubeconfig", up, given=written({**config, "data": {"main.py": "print('old')"}}, job)
    )
    assert first.returncode == 0, first.stdout + first.stderr
    assert trainmaster("delete", "edited", "--kubeconfig", up).returncode == 0

    second = trainmaster(
        "run", "-", "--kubeconfig", up, given=written({**config, "data": {"main.py": "print('new')"}}, job)
    )

    assert second.returncode == 0, second.stdout + second.stderr
    assert "[worker-0] new" in second.stdout


def test_the_namespace_that_is_named_is_made():
    code = "print(open('/var/run/secrets/kubernetes.io/serviceaccount/namespace').read())"

    done = trainmaster("run", "-", "-n", "teamy", given=written(a_script(code)))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[worker-0] teamy" in done.stdout


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_job_is_followed_by_the_name_that_the_server_made(up, where):
    flags = ("--kubeconfig", up) if where == "there" else ()

    done = trainmaster("run", "-", *flags, given=written(a_script("print('hello')", generateName="gen-")))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "[worker-0] hello" in done.stdout
    assert re.search(r"^JAXJob gen-[a-z0-9]{5}: Succeeded after", done.stdout, re.MULTILINE)


def test_a_job_that_is_given_twice_starts_nothing(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_text(written(a_script("pass")))

    done = trainmaster("run", path, path, TMPDIR=str(tmp_path))

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{path}: JAXJob script: it is given twice; leave one out, or rename one" in done.stderr


@pytest.mark.parametrize(
    ("code", "flags", "result"),
    [
        pytest.param("pass", (), 0, id="succeeded"),
        pytest.param("raise SystemExit(3)", (), 1, id="failed"),
        pytest.param("import time; time.sleep(600)", ("--timeout", "1"), 124, id="out of time"),
    ],
)
def test_a_kept_cluster_ends_with_what_became_of_the_job(code, flags, result):
    with started("run", "-", "--keep", *flags, given=written(a_script(code))) as command:
        said(command, "The cluster stays up; press Ctrl-C to end it.")
        assert command.poll() is None

        command.send_signal(signal.SIGINT)
        _, told = command.communicate(timeout=PATIENCE)

    assert command.returncode == result
    assert told.endswith("the cluster that was kept has ended, with everything in it\n")
    assert processes("script") == []
