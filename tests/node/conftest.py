"""A real node for the whole session, with Trainmaster installed on it from its own manifests."""

import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import yaml
from tests.node.kubectl import Kubectl
from tools import image
from tools.kubernetes import node_images
from tools.kubernetes.controlplane import EVERY, control_plane
from tools.kubernetes.node import node
from tools.kubernetes.node_images import DELIVERY, RANKS
from tools.kubernetes.node_room import ADDRESS

NAMESPACE = "trainmaster-system"
REPORT = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def report(request):
    """Lines that are printed at the end: what happened, and how long it took."""
    return request.config.stash.setdefault(REPORT, [])


@contextmanager
def timed(report, what):
    start = time.monotonic()
    yield
    report.append(f"{time.monotonic() - start:7.1f} s  {what}")


@pytest.fixture(scope="session")
def kubectl(report, tmp_path_factory):
    place = tmp_path_factory.mktemp("images")
    with timed(report, "the images were made"):
        ranks = node_images.archive(place, Path(__file__).parent / "programs")
        image.build(place / "operator.tar")
    with ExitStack() as stack:
        with timed(report, "the control plane answered"):
            plane = stack.enter_context(control_plane(ADDRESS, controllers=EVERY))
        with timed(report, "the node was ready: containerd, images, kubelet, kube-proxy, names"):
            running = stack.enter_context(node(plane, (ranks, place / "operator.tar")))
        yield Kubectl(running.kubectl)


@pytest.fixture(scope="session")
def operator(kubectl, report):
    """The namespace of an operator with two replicas, both ready."""
    with timed(report, "the operator was installed and ready, twice"):
        kubectl.apply([*manifests()])
        kubectl("rollout", "status", "deployment/trainmaster", f"--namespace={NAMESPACE}", "--timeout=120s")
    return NAMESPACE


def manifests(*flags):
    """As printed, but for what this cluster is too old for, and for images that it could not fetch."""
    command = [sys.executable, "-m", "trainmaster", "manifests", *flags]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for item in yaml.safe_load_all(printed):
        match item["kind"]:
            case "PodDisruptionBudget":
                item["apiVersion"] = "policy/v1beta1"
            case "Deployment":
                [container] = item["spec"]["template"]["spec"]["containers"]
                container["args"] += [f"--mpi-kubectl-delivery-image={DELIVERY}", f"--coordinator-image={RANKS}"]
        yield item


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(REPORT, []):
        terminalreporter.write_line(line)
