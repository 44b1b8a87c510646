# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A rank of any kind of job: finds the others by what the operator told it, and sums what all of them bring.

Rank r brings BASE * 10**r, so the sum says who took part. TFJob and MXJob name every replica, so each is called by all
the others on its own port; the other kinds name a place to meet. After that, a role listed in STAY never ends.
"""

import json
import os
import signal
import socket
import time

BASE = int(os.environ.get("BASE", "1"))


def connect(address, patience=150.0):
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(address, 5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def meet(place, is_host, world, number):
    """Everybody brings a number to the host, who tells all of them the sum."""
    if not is_host:
        with connect(place) as guest, guest.makefile("rw") as stream:
            print(number, file=stream, flush=True)
            return int(stream.readline())
    with socket.create_server(("", place[1])) as door:
        streams = [door.accept()[0].makefile("rw") for _ in range(world - 1)]
    total = number + sum(int(stream.readline()) for stream in streams)
    for stream in streams:
        print(total, file=stream, flush=True)
        stream.close()
    return total


def call_all(addresses, index, number):
    """Everybody calls everybody else, each on its own port."""
    with socket.create_server(("", addresses[index][1])) as door:
        for address in addresses[:index] + addresses[index + 1 :]:
            with connect(address) as caller:
                caller.sendall(f"{number}\n".encode())
        total = number
        for _ in range(len(addresses) - 1):
            caller, _ = door.accept()
            with caller, caller.makefile() as stream:
                total += int(stream.readline())
    return total


def listed(cluster, task):
    """The addresses of all replicas, roles in alphabetical order, and which of them is this one."""
    roles = sorted(cluster)
    before = sum(len(cluster[role]) for role in roles[: roles.index(task["type"])])
    return [tuple(address) for role in roles for address in cluster[role]], before + task["index"]


def tensorflow(env):
    config = json.loads(env["TF_CONFIG"])
    split = {role: [address.split(":") for address in named] for role, named in config["cluster"].items()}
    cluster = {role: [(host, int(port)) for host, port in addresses] for role, addresses in split.items()}
    addresses, index = listed(cluster, config["task"])
    return config["task"]["type"], call_all(addresses, index, BASE * 10**index)


def mxnet(env):
    config = json.loads(env["MX_CONFIG"])
    cluster = {role: [(peer["url"], peer["port"]) for peer in peers] for role, peers in config["cluster"].items()}
    root = (env["DMLC_PS_ROOT_URI"], int(env["DMLC_PS_ROOT_PORT"]))
    assert root in cluster["scheduler"], root
    assert int(env["DMLC_NUM_WORKER"]) == len(cluster["worker"])
    addresses, index = listed(cluster, config["task"])
    return env["DMLC_ROLE"], call_all(addresses, index, BASE * 10**index)


def paddle(env):
    """No ranks are dealt out: that is the launcher's work. The host knows itself by its address."""
    host, port = env["PADDLE_MASTER"].split(":")
    is_host = "POD_IP_DUMMY" in env
    return "worker", meet((host, int(port)), is_host, int(env["PADDLE_NNODES"]), BASE * 10 ** (not is_host))


def ranked(host, port, rank, world):
    """PyTorch, XGBoost and JAX: a place to meet, a rank, a world."""
    role = "master" if rank == "0" else "worker"
    return role, meet((host, int(port)), rank == "0", int(world), BASE * 10 ** int(rank))


def exchanged(env):
    if "TF_CONFIG" in env:
        return tensorflow(env)
    if "MX_CONFIG" in env:
        return mxnet(env)
    if "PADDLE_MASTER" in env:
        return paddle(env)
    if "COORDINATOR_ADDRESS" in env:
        return ranked(env["COORDINATOR_ADDRESS"], env["COORDINATOR_PORT"], env["PROCESS_ID"], env["NUM_PROCESSES"])
    return ranked(env["MASTER_ADDR"], env["MASTER_PORT"], env["RANK"], env["WORLD_SIZE"])


def main():
    role, total = exchanged(os.environ)
    print(f"{role} has sum {total}", flush=True)
    while role in os.environ.get("STAY", "").split():
        signal.pause()


main()
