"""The command lines of the programs that the cluster gives to its pods."""

from __future__ import annotations

import pytest

from trainmaster.cluster.kubelet import inside_kubectl, inside_ssh, inside_sshd


@pytest.mark.parametrize(
    ("words", "pod", "command", "rest"),
    [
        ("exec p -- sh -c x", "p", ("sh", "-c", "x"), ("", "", False)),
        ("exec p --container c -- x -n y", "p", ("x", "-n", "y"), ("", "c", False)),
        ("exec -i -n team p -c c -- x", "p", ("x",), ("team", "c", True)),
        ("--namespace=team exec -it pod/p x -- y", "p", ("x", "--", "y"), ("team", "", True)),
        ("exec -nteam pods/p --stdin=false -- x", "p", ("x",), ("team", "", False)),
    ],
    ids=["plain", "container", "all", "no-dashes", "attached"],
)
def test_kubectl_reads_what_launchers_write(words, pod, command, rest):
    order = inside_kubectl.parse(words.split())

    assert (order.pod, order.command) == (pod, command)
    assert (order.namespace, order.container, order.is_fed) == rest


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("get pods", "knows `exec` alone, not 'get'"),
        ("exec -- x", "pod is missing"),
        ("exec p", "command is missing"),
        ("exec p --as me -- x", "there is no option --as"),
        ("exec p -c", "-c needs a value"),
    ],
    ids=["verb", "pod", "command", "option", "value"],
)
def test_kubectl_says_what_it_does_not_know(words, told):
    with pytest.raises(inside_kubectl.Misuse, match=told):
        inside_kubectl.parse(words.split())


@pytest.mark.parametrize(
    ("words", "host", "command"),
    [
        (["w-0", "orted", "-mca", "x", "1"], "w-0", ("orted", "-mca", "x", "1")),
        (["-x", "w-0", "PATH=/a:$PATH ; orted"], "w-0", ("PATH=/a:$PATH ; orted",)),
        (["-o", "StrictHostKeyChecking=no", "-oBatchMode=yes", "-p2222", "me@w-0", "true"], "w-0", ("true",)),
        (["-qTi", "/root/.ssh/id_rsa", "w-0", "-l", "me", "ls", "-l"], "w-0", ("ls", "-l")),
        (["-4", "-n", "--", "w-0"], "w-0", ()),
    ],
    ids=["mpirun", "shell", "options", "clustered", "no-command"],
)
def test_ssh_reads_what_mpirun_writes(words, host, command):
    order = inside_ssh.parse(words)

    assert (order.host, order.command) == (host, command)
    assert order.unknown == []


@pytest.mark.parametrize(
    ("words", "is_fed", "attempts"),
    [("w", True, 1), ("-n w", False, 1), ("-o ConnectionAttempts=10 w", True, 10), ("-o StdinNull=yes w", False, 1)],
    ids=["plain", "no-input", "attempts", "null"],
)
def test_ssh_minds_its_input_and_how_often_to_try(words, is_fed, attempts):
    order = inside_ssh.parse(words.split())

    assert (order.is_fed, order.attempts) == (is_fed, attempts)


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("job-worker-0", True),
        ("job-worker-0.job", True),
        ("job-worker-0.job.team.svc", True),
        ("job-worker-0.job.team.svc.cluster.local", True),
        ("job-worker-0.team", True),
        ("10.244.0.9", True),
        ("job-worker-0.job.other.svc", False),
        ("job-worker-0.com", False),
        ("10.244.0.8", False),
    ],
)
def test_a_host_is_a_pod_by_its_names_and_address(host, is_it):
    pod = {
        "metadata": {"name": "job-worker-0", "namespace": "team"},
        "spec": {"hostname": "job-worker-0", "subdomain": "job"},
        "status": {"podIP": "10.244.0.9"},
    }

    assert inside_ssh.is_named(pod, host) is is_it


@pytest.mark.parametrize(
    ("host", "names"),
    [
        ("w", [("own", "w")]),
        ("w.job", [("own", "w"), ("job", "w")]),
        ("w.job.team.svc", [("team", "w")]),
        ("w.job.team.svc.cluster.local", [("team", "w")]),
        ("a.b.c.example.com", []),
    ],
)
def test_a_pod_is_looked_for_where_its_name_says(host, names):
    assert list(inside_ssh.names_of(host, "own")) == names


@pytest.mark.parametrize(
    ("words", "ports", "stays"),
    [
        ("-De", [22, 2222], True),
        ("-D -p 2022 -o Port=2023", [2022, 2023], True),
        ("-e -h key", [22, 2222], False),
    ],
    ids=["default", "given", "background"],
)
def test_sshd_listens_where_it_is_told(words, ports, stays):
    order = inside_sshd.parse(words.split())

    assert (order.ports, order.stays, order.is_test) == (ports, stays, False)


def test_sshd_reads_its_port_from_its_file(tmp_path):
    (tmp_path / "config").write_text("#Port 1\nPort 2200\nListenAddress 0.0.0.0\n")

    assert inside_sshd.parse(["-De", "-f", str(tmp_path / "config")]).ports == [2200]
    assert inside_sshd.parse(["-De", "-f", str(tmp_path / "none")]).ports == [22, 2222]


def test_sshd_that_checks_its_settings_is_content():
    assert inside_sshd.parse(["-t"]).is_test
