"""Parameter servers and trainers in plain Python, in the contract of Paddle's PS mode: no variable, no training.

Every server keeps a part of the weights. In each step a trainer sends every server the gradient of its part; when all
trainers have, the server makes a step and sends the new weights back. A server does not end by itself, as Paddle's.
"""

import json
import os
import random
import socket
import threading
import time

ROLE, INDEX = os.environ["PADDLE_TRAINING_ROLE"], int(os.environ["PADDLE_TRAINER_ID"])
SERVERS = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"].split(",")
TRAINERS = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")
STEPS = int(os.environ.get("STEPS", "60"))
TRUTH = (3.0, -2.0, 0.5, 1.0, -1.5)


def check():
    """The variables agree with one another."""
    own = (SERVERS if ROLE == "PSERVER" else TRAINERS)[INDEX]
    expected = {
        "TRAINING_ROLE": ROLE,
        "POD_IP": own.rpartition(":")[0],
        "PADDLE_PORT": own.rpartition(":")[2],
        "PADDLE_TRAINERS_NUM": str(len(TRAINERS)),
        "PADDLE_TRAINERS": ",".join(endpoint.rpartition(":")[0] for endpoint in TRAINERS),
    }
    for name, value in expected.items():
        assert os.environ[name] == value, f"{name} is {os.environ[name]}, and the endpoints say {value}"
    print(f"{ROLE} {INDEX} at {own}, one of {len(SERVERS)} servers and {len(TRAINERS)} trainers", flush=True)


def send(stream, value):
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def connect(endpoint, patience=60.0):
    host, _, port = endpoint.rpartition(":")
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((host, int(port)), 5).makefile("rwb")
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Part:
    """The weights that one server keeps."""

    def __init__(self, size):
        self.weights, self.total = [0.0] * size, [0.0] * size
        self._lock, self._all = threading.Lock(), threading.Barrier(len(TRAINERS), self._step)

    def _step(self):
        self.weights = [w - 0.1 * slope / len(TRAINERS) for w, slope in zip(self.weights, self.total, strict=True)]
        self.total = [0.0] * len(self.total)

    def serve(self, stream):
        for line in stream:
            with self._lock:
                self.total = [a + b for a, b in zip(self.total, json.loads(line), strict=True)]
            self._all.wait()
            send(stream, self.weights)


def serve():
    part = Part(len(TRUTH[INDEX :: len(SERVERS)]))
    with socket.create_server(("", int(os.environ["PADDLE_PORT"]))) as door:
        while True:
            guest, _ = door.accept()
            threading.Thread(target=part.serve, args=[guest.makefile("rwb")], daemon=True).start()


def train():
    streams = [connect(endpoint) for endpoint in SERVERS]
    dice = random.Random(INDEX)
    # Every trainer has data of its own, in which one input never appears: alone it could not learn its weight.
    points = [[0.0 if i == INDEX else dice.gauss(0, 1) for i in range(len(TRUTH))] for _ in range(50)]
    wanted = [sum(t * x for t, x in zip(TRUTH, point, strict=True)) for point in points]
    weights = [0.0] * len(TRUTH)
    for step in range(STEPS):
        errors = [sum(w * x for w, x in zip(weights, p, strict=True)) - y for p, y in zip(points, wanted, strict=True)]
        loss = sum(e * e for e in errors) / len(errors)
        gradient = [
            2 * sum(e * p[i] for e, p in zip(errors, points, strict=True)) / len(errors) for i in range(len(TRUTH))
        ]
        for number, stream in enumerate(streams):
            send(stream, gradient[number :: len(streams)])
        for number, stream in enumerate(streams):
            weights[number :: len(streams)] = json.loads(stream.readline())
        if INDEX == 0 and step % 20 == 0:
            print(f"step {step} loss {loss:.6f}", flush=True)
    print(f"trainer {INDEX} final loss {loss:.6f} weights {[round(w, 3) for w in weights]}", flush=True)


check()
serve() if ROLE == "PSERVER" else train()
