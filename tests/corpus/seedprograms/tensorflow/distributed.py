# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Servers and workers of a TFJob, by TF_CONFIG: workers meet at every server, and at the first of themselves."""

import json
import os
import socket

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

config = json.loads(os.environ["TF_CONFIG"])
cluster, role, index = config["cluster"], config["task"]["type"], config["task"]["index"]
assert set(cluster) == {"ps", "worker"}, cluster
servers, workers = ([meeting.place(address) for address in cluster[name]] for name in ("ps", "worker"))
host, port = meeting.place(cluster[role][index])
assert socket.gethostbyname(host) == meeting.own_address(), host

if role == "ps":
    meeting.serve(("", port), len(workers))
sums = {meeting.bring(server, 10**index) for server in servers}
sums.add(meeting.agree(workers[0], index, len(workers)))
print(f"worker {index} of {len(workers)} has sum {sums.pop()}")
assert not sums, sums
meeting.part(workers[0], index, len(workers))
