"""The contract of a container: commands, environment, restarts, probes, hooks, limits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.machine import refusal

from trainmaster.cluster.kubelet.images import ImageMapping, Images
from trainmaster.cluster.kubelet.kubelet_api import Timing
from trainmaster.cluster.kubelet.logfiles import Selection, read
from trainmaster.testing.patience import PATIENCE
from trainmaster.testing.podworld import Lab, PodWorld, a_container, a_lab, a_pod, leap, script

pytestmark = pytest.mark.sandbox

T = TypeVar("T")

QUICK = Timing(back_off=0.05, back_off_max=0.2, retry=0.05, coalesce=0.0)


def in_lab(root: Path, body: Callable[[Lab], Awaitable[T]], **options: Any) -> T:
    async def main() -> T:
        async with a_lab(root, timing=QUICK, **options) as lab:
            return await body(lab)

    return asyncio.run(main())


def log_of(root: Path, pod: dict[str, Any], **options: Any) -> str:
    return in_lab(root, lambda lab: lab.ran(pod), **options)


def test_env_args_and_working_directory_are_the_manifests(tmp_path: Path) -> None:
    container = a_container(
        "sh",
        "-c",
        'echo "$1 $WHO $WHERE $ME"; pwd; env',
        "sh",
        args=["$(GREETING)"],
        env=[
            {"name": "GREETING", "value": "hello"},
            {"name": "WHO", "value": "$(GREETING)-world"},
            {"name": "WHERE", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        workingDir=str(tmp_path),
    )
    os.environ["SECRET_OF_THIS_MACHINE"] = "x"

    async def body(lab: Lab) -> tuple[list[str], str]:
        log = await lab.ran(a_pod("one", containers=[container]))
        return log.splitlines(), lab.world.pod("one")["status"]["podIP"]

    lines, address = in_lab(tmp_path, body)

    assert lines[:2] == [f"hello hello-world {address} one", str(tmp_path)]
    assert "HOSTNAME=one" in lines
    assert not [line for line in lines if "SECRET_OF_THIS_MACHINE" in line]


@pytest.mark.namespaces
def test_a_working_directory_that_is_missing_is_made(tmp_path: Path) -> None:
    container = a_container("pwd", workingDir="/not/there/yet")

    assert log_of(tmp_path, a_pod("one", containers=[container])) == "/not/there/yet\n"


def a_mapped_image(root: Path, program: str) -> Images:
    """Its entrypoint is the program, a shell script; its files are one, /image/data."""
    (root / "bin").mkdir()
    entrypoint = root / "bin" / "train"
    entrypoint.write_text(f"#!/bin/sh\n{program}\n")
    entrypoint.chmod(0o755)
    (root / "data").write_text("data of the image\n")
    mapping = ImageMapping(
        "test",
        path_prefix=(root / "bin",),
        overlays={"/image/data": root / "data"},
        entrypoint=("train",),
        cmd=("by-default",),
        env={"FROM_IMAGE": "yes", "DATA": "/image/data"},
        workdir="/image",
    )
    return Images([mapping])


def test_a_mapped_image_brings_its_programs_files_and_entrypoint(tmp_path: Path) -> None:
    images = a_mapped_image(tmp_path, "cat $DATA; echo $FROM_IMAGE $1")

    log = log_of(tmp_path, a_pod("one", containers=[{"name": "main", "image": "test"}]), images=images)

    assert log == "data of the image\nyes by-default\n"


@pytest.mark.namespaces
def test_the_files_of_a_mapped_image_are_at_their_paths(tmp_path: Path) -> None:
    images = a_mapped_image(tmp_path, "pwd; cat /image/data")

    log = log_of(tmp_path, a_pod("one", containers=[{"name": "main", "image": "test"}]), images=images)

    assert log == "/image\ndata of the image\n"


def test_an_image_without_command_or_mapping_says_which_line_to_add(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", a_pod("one", containers=[{"name": "main", "image": "who/knows:1"}]))
        await lab.world.until(lambda: lab.world.state("one").get("waiting", {}).get("reason") == "ImageNotMapped")
        return lab.world

    world = in_lab(tmp_path, body)

    assert 'match: "who/knows:1"' in world.state("one")["waiting"]["message"]
    assert world.phase("one") == "Pending"
    assert "Failed" in world.reasons()


def test_a_container_waits_for_the_config_map_it_names(tmp_path: Path) -> None:
    variable = {"name": "COLOUR", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "colour"}}}

    async def body(lab: Lab) -> tuple[str, str]:
        world = lab.world
        world.add("Pod", a_pod("one", containers=[a_container("sh", "-c", "echo $COLOUR", env=[variable])]))
        await world.until(lambda: world.state("one").get("waiting", {}).get("reason") == "CreateContainerConfigError")
        message = world.state("one")["waiting"]["message"]
        world.add("ConfigMap", {"metadata": {"name": "settings"}, "data": {"colour": "blue"}})
        await world.finished("one")
        return message, lab.log("one")

    assert in_lab(tmp_path, body) == ('configmap "settings" not found', "blue\n")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        pytest.param("no-such-program", "StartError", id="missing"),
        pytest.param("/etc/passwd", "StartError", id="not-executable"),
    ],
)
def test_a_command_that_cannot_start_fails_the_container(tmp_path: Path, command: str, reason: str) -> None:
    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", a_pod("one", command))
        assert await lab.world.finished("one") == "Failed"
        return lab.world

    ended = in_lab(tmp_path, body).state("one")["terminated"]

    assert (ended["exitCode"], ended["reason"]) == (128, reason)
    assert command in ended["message"]


def test_a_failing_container_is_restarted_at_once_then_with_growing_pauses(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        world = lab.world
        world.add("Pod", a_pod("one", "sh", "-c", "exit 1", restartPolicy="Always"))
        await world.until(lambda: world.status("one").get("restartCount") == 3)
        await world.until(lambda: "waiting" in world.state("one"))
        return world

    world = in_lab(tmp_path, body)

    waiting = world.state("one")["waiting"]
    assert waiting["reason"] == "CrashLoopBackOff"
    assert "restarting failed container=main" in waiting["message"]
    assert world.status("one")["lastState"]["terminated"]["exitCode"] == 1
    assert world.phase("one") == "Running"
    assert world.reasons().count("Started") == 4
    assert [event.message[:22] for event in world.events if event.reason == "BackOff"] == ["Back-off restarting fa"] * 3


@pytest.mark.parametrize(
    ("policy", "code", "restarts"),
    [
        pytest.param("Never", 1, 0, id="never"),
        pytest.param("OnFailure", 0, 0, id="on-failure-of-success"),
        pytest.param("OnFailure", 1, 1, id="on-failure-of-failure"),
        pytest.param("Always", 0, 1, id="always"),
    ],
)
def test_the_restart_policy_decides(tmp_path: Path, policy: str, code: int, restarts: int) -> None:
    once = f"import os, sys; again = os.path.exists('/v/x'); open('/v/x', 'w'); os._exit(0 if again else {code})"
    container = a_container(*script(once), volumeMounts=[{"name": "v", "mountPath": "/v"}])

    async def body(lab: Lab) -> PodWorld:
        world = lab.world
        world.add(
            "Pod", a_pod("one", containers=[container], restartPolicy=policy, volumes=[{"name": "v", "emptyDir": {}}])
        )
        await world.until(
            lambda: (
                world.status("one").get("restartCount") == restarts
                and ("terminated" in world.state("one") or world.status("one")["lastState"])
            )
        )
        return world

    world = in_lab(tmp_path, body)

    assert world.status("one")["restartCount"] == restarts


def test_the_state_of_an_attempt_is_never_shown_with_the_number_of_another(tmp_path: Path) -> None:
    shown: list[dict[str, Any]] = []

    async def body(lab: Lab) -> None:
        def seen() -> bool:
            shown.append(dict(lab.world.status("one")))
            return shown[-1].get("restartCount") == 3

        lab.world.add("Pod", a_pod("one", "sh", "-c", "exit 1", restartPolicy="Always"))
        await lab.world.until(seen)

    in_lab(tmp_path, body)

    ended = [status for status in shown if "terminated" in status.get("state", {})]
    numbers = [
        (status["state"]["terminated"]["containerID"].rpartition("-")[2], status["restartCount"]) for status in ended
    ]
    assert ended
    assert [number for number, count in numbers if number != str(count)] == []


def test_init_containers_run_one_after_the_other_before_the_rest(tmp_path: Path) -> None:
    mount = [{"name": "v", "mountPath": "/v"}]
    inits = [a_container("sh", "-c", f"echo {name} >> /v/order", name=name, volumeMounts=mount) for name in ("a", "b")]
    main = a_container("cat", "/v/order", volumeMounts=mount)
    pod = a_pod("one", containers=[main], initContainers=inits, volumes=[{"name": "v", "emptyDir": {}}])

    assert log_of(tmp_path, pod) == "a\nb\n"


def test_a_failed_init_container_fails_a_pod_that_is_never_restarted(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        init = a_container("sh", "-c", "exit 3", name="first")
        lab.world.add("Pod", a_pod("one", "true", initContainers=[init]))
        assert await lab.world.finished("one") == "Failed"
        return lab.world

    world = in_lab(tmp_path, body)

    assert world.state("one", "first")["terminated"]["exitCode"] == 3
    assert world.state("one")["waiting"]["reason"] == "PodInitializing"


def test_a_sidecar_starts_before_the_containers_and_ends_after_them(tmp_path: Path) -> None:
    mount = [{"name": "v", "mountPath": "/v"}]
    trap = (
        "import signal, sys; signal.signal(15, lambda *_: sys.exit(7)); open('/v/up', 'w'); print('up'); signal.pause()"
    )
    asked = {"exec": {"command": ["test", "-e", "/v/up"]}}
    ready = {**asked, "periodSeconds": 0.02, "failureThreshold": 10**9, "timeoutSeconds": PATIENCE}
    side = a_container(*script(trap), name="side", volumeMounts=mount, restartPolicy="Always", startupProbe=ready)
    main = a_container("ls", "/v", volumeMounts=mount)
    pod = a_pod("one", containers=[main], initContainers=[side], volumes=[{"name": "v", "emptyDir": {}}])

    async def body(lab: Lab) -> tuple[str, PodWorld]:
        return await lab.ran(pod), lab.world

    log, world = in_lab(tmp_path, body)

    assert log == "up\n"
    assert world.phase("one") == "Succeeded"
    assert world.state("one", "side")["terminated"]["exitCode"] == 7


def test_the_last_log_lines_are_the_message_where_the_policy_says_so(tmp_path: Path) -> None:
    container = a_container("sh", "-c", "echo it broke; exit 1", terminationMessagePolicy="FallbackToLogsOnError")

    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", a_pod("one", containers=[container]))
        await lab.world.finished("one")
        return lab.world

    assert in_lab(tmp_path, body).state("one")["terminated"]["message"] == "it broke\n"


def test_a_pod_past_its_deadline_is_ended(tmp_path: Path) -> None:
    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", a_pod("one", "sleep", "1000", activeDeadlineSeconds=1000))
        await lab.world.until(lambda: lab.world.phase("one") == "Running")
        leap(1000)
        assert await lab.world.finished("one") == "Failed"
        return lab.world

    world = in_lab(tmp_path, body)

    assert world.pod("one")["status"]["reason"] == "DeadlineExceeded"
    assert world.state("one")["terminated"]["exitCode"] == 143


def test_a_failing_liveness_probe_restarts_the_container(tmp_path: Path) -> None:
    probe = {"exec": {"command": ["false"]}, "periodSeconds": 0.02, "failureThreshold": 2}
    container = a_container("sleep", "1000", livenessProbe=probe)

    async def body(lab: Lab) -> PodWorld:
        world = lab.world
        world.add("Pod", a_pod("one", containers=[container], restartPolicy="Always"))
        await world.until(lambda: world.status("one").get("restartCount", 0) >= 1)
        return world

    world = in_lab(tmp_path, body)

    assert "Unhealthy" in world.reasons()
    assert world.status("one")["lastState"]["terminated"]["exitCode"] == 143


def test_a_readiness_probe_decides_whether_the_pod_is_ready(tmp_path: Path) -> None:
    serve = """
import http.server, os
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if os.path.exists("/v/ready") else 503); self.end_headers()
    def log_message(self, *a): pass
http.server.HTTPServer(("", 8080), H).serve_forever()
"""
    asked = {"httpGet": {"port": "web", "path": "/health"}}
    probe = {**asked, "periodSeconds": 0.02, "failureThreshold": 1, "timeoutSeconds": PATIENCE}
    container = a_container(
        *script(serve),
        ports=[{"name": "web", "containerPort": 8080}],
        readinessProbe=probe,
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
    )

    async def body(lab: Lab) -> list[bool]:
        world = lab.world
        pod = world.add("Pod", a_pod("one", containers=[container], volumes=[{"name": "v", "emptyDir": {}}]))
        directory = tmp_path / "pods" / pod["metadata"]["uid"] / "volumes" / "v"
        await world.until(lambda: any("503" in event.message for event in world.events))
        seen = [world.status("one")["ready"]]
        (directory / "ready").touch()
        await world.until(lambda: world.status("one")["ready"])
        seen.append(world.status("one")["ready"])
        (directory / "ready").unlink()
        await world.until(lambda: not world.status("one")["ready"])
        seen.append(world.status("one")["ready"])
        return seen

    assert in_lab(tmp_path, body) == [False, True, False]


def test_a_startup_probe_holds_the_others_back(tmp_path: Path) -> None:
    serve = f"""
import os, signal, socket, time
while not os.path.exists({str(tmp_path / "gate")!r}): time.sleep(0.01)
server = socket.create_server(("", 9099))
signal.pause()
"""
    container = a_container(
        *script(serve),
        startupProbe={"tcpSocket": {"port": 9099}, "periodSeconds": 0.02, "failureThreshold": 10**9},
        livenessProbe={"exec": {"command": ["true"]}, "periodSeconds": 0.02, "timeoutSeconds": PATIENCE},
    )

    async def body(lab: Lab) -> tuple[bool, int]:
        world = lab.world
        world.add("Pod", a_pod("one", containers=[container]))
        await world.until(lambda: world.phase("one") == "Running")
        early = world.status("one")["started"]
        (tmp_path / "gate").touch()
        await world.until(lambda: world.status("one")["started"])
        return early, world.status("one")["restartCount"]

    assert in_lab(tmp_path, body) == (False, 0)


def test_hooks_run_after_the_start_and_before_the_stop(tmp_path: Path) -> None:
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", f"echo post >> {tmp_path}/said"]}},
        "preStop": {"exec": {"command": ["sh", "-c", f"echo pre >> {tmp_path}/said"]}},
    }
    wait = f"until [ -e {tmp_path}/said ]; do sleep 0.01; done; echo seen; exec sleep 1000"

    async def body(lab: Lab) -> None:
        world = lab.world
        world.add("Pod", a_pod("one", containers=[a_container("sh", "-c", wait, lifecycle=hooks)]))
        await lab.until_logged("one", "seen")
        world.delete_pod("one")
        await world.until(lambda: not world.has_pod("one"))

    in_lab(tmp_path, body)

    assert (tmp_path / "said").read_text() == "post\npre\n"


@pytest.mark.namespaces
def test_hooks_find_the_main_process_of_their_container_as_process_1(tmp_path: Path) -> None:
    to_log = "> /proc/1/fd/1"
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", f"echo post {to_log}"]}},
        "preStop": {"exec": {"command": ["sh", "-c", f"echo pre {to_log}"]}},
    }

    async def body(lab: Lab) -> str:
        world = lab.world
        world.add("Pod", a_pod("one", containers=[a_container("sleep", "1000", lifecycle=hooks)]))
        await lab.until_logged("one", "post")
        uid = world.pod("one")["metadata"]["uid"]
        world.delete_pod("one")
        await world.until(lambda: not world.has_pod("one"))
        return read(tmp_path / "pods" / uid / "main" / "0.log", Selection()).decode()

    assert in_lab(tmp_path, body) == "post\npre\n"


def test_a_failed_post_start_hook_ends_the_container(tmp_path: Path) -> None:
    hooks = {"postStart": {"exec": {"command": ["sh", "-c", "echo no luck; exit 1"]}}}

    async def body(lab: Lab) -> PodWorld:
        lab.world.add("Pod", a_pod("one", containers=[a_container("sleep", "1000", lifecycle=hooks)]))
        assert await lab.world.finished("one") == "Failed"
        return lab.world

    world = in_lab(tmp_path, body)

    assert [event.message for event in world.events if event.reason == "FailedPostStartHook"] == [
        "PostStartHook failed: no luck"
    ]


def test_a_container_over_its_memory_limit_is_oom_killed_where_limits_can_be_set(tmp_path: Path) -> None:
    greedy = "x = bytearray(200 << 20); print(sum(x))"
    container = a_container(*script(greedy), resources={"limits": {"memory": "50Mi", "cpu": "500m"}})

    async def body(lab: Lab) -> tuple[bool, PodWorld]:
        lab.world.add("Pod", a_pod("one", containers=[container]))
        await lab.world.finished("one")
        return lab.sandbox.can_limit, lab.world

    can_limit, world = in_lab(tmp_path, body)

    ended = world.state("one")["terminated"]
    told = [event.message for event in world.events if event.reason == "LimitsNotEnforced"]
    if can_limit:
        assert (ended["exitCode"], ended["reason"]) == (137, "OOMKilled")
        assert told == []
    else:
        assert ended["exitCode"] == 0
        assert len(told) == 1


def test_a_container_runs_as_the_user_it_asks_for_where_we_may(tmp_path: Path) -> None:
    container = a_container("sh", "-c", "id -u; id -g; id -G", securityContext={"runAsUser": 1234, "runAsGroup": 56})
    pod = a_pod("one", containers=[container], securityContext={"supplementalGroups": [78]})

    log = log_of(tmp_path, pod)

    # An ordinary user is root in a namespace, and else nothing but itself.
    ours = f"{os.getuid()}\n{os.getgid()}\n{os.getgid()}\n" if refusal() else "0\n0\n0\n"
    assert log == ("1234\n56\n56 78\n" if os.geteuid() == 0 else ours)


def test_gpus_are_dealt_out_by_number(tmp_path: Path) -> None:
    ask: dict[str, Any] = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    show = ("sh", "-c", "echo [$CUDA_VISIBLE_DEVICES]")

    async def body(lab: Lab) -> tuple[str, str, PodWorld]:
        world = lab.world
        world.add("Node", {"metadata": {"name": "here", "annotations": {"trainmaster.dev/gpus": "0,1,2"}}})
        world.add("Pod", a_pod("holds", containers=[a_container("sleep", "1000", **ask)]))
        await world.until(lambda: world.phase("holds") == "Running")
        none = await lab.ran(a_pod("none", *show))
        world.add("Pod", a_pod("too-many", containers=[a_container(*show, **ask)]))
        await world.finished("too-many")
        world.delete_pod("holds")
        await world.until(lambda: not world.has_pod("holds"))
        return none, await lab.ran(a_pod("later", containers=[a_container(*show, **ask)])), world

    none, later, world = in_lab(tmp_path, body)

    assert (none, later) == ("[]\n", "[0,1]\n")
    assert world.pod("too-many")["status"]["reason"] == "UnexpectedAdmissionError"
