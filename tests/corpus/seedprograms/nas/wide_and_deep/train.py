# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""Servers and trainers of a PaddleJob: trainers meet at every server, and at gloo's endpoint where there is one."""

import os
import socket
import threading

import meeting  # type: ignore[import-not-found]  # laid over the image by trainmaster.yaml

env = os.environ
role, number, world = env["TRAINING_ROLE"], int(env["PADDLE_TRAINER_ID"]), int(env["PADDLE_TRAINERS_NUM"])
servers, trainers = (env[name].split(",") for name in ("PADDLE_PSERVERS_IP_PORT_LIST", "PADDLE_TRAINER_ENDPOINTS"))
own = (servers if role == "PSERVER" else trainers)[number]
assert own == f"{env['POD_IP']}:{env['PADDLE_PORT']}", own
assert env["PADDLE_TRAINERS"].split(",") == [meeting.place(trainer)[0] for trainer in trainers]
assert len(trainers) == world
assert socket.gethostbyname(env["POD_IP"]) == meeting.own_address()
gloo = env.get("PADDLE_GLOO_HTTP_ENDPOINT", "") if env.get("PADDLE_WITH_GLOO") == "1" else ""
assert not gloo or env["PADDLE_GLOO_RENDEZVOUS"] == "3"

if role == "PSERVER":
    print(f"server {number} of {len(servers)} serves", flush=True)
    if gloo and number == 0:
        assert meeting.place(gloo)[0] == env["POD_IP"], gloo
        threading.Thread(target=meeting.serve, args=(("", meeting.place(gloo)[1]), world)).start()
    meeting.serve(("", int(env["PADDLE_PORT"])), world)
meeting_places = [*servers, *([gloo] if gloo else [])]
sums = {meeting.bring(meeting.place(where), 10**number) for where in meeting_places}
sums.add(meeting.agree(meeting.place(trainers[0]), number, world))
print(f"trainer {number} of {world} has sum {sums.pop()} of {len(meeting_places)} servers")
assert not sums, sums
