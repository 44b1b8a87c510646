"""Linear regression on several ranks, in plain Python: gradients travel around a ring.

The contract is the one that torch.distributed reads: MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE. Rank 0 introduces
the ranks to one another; then each talks to its right neighbour only, and once around the ring all hold the same sum.
"""

import json
import os
import random
import socket
import time

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
STEPS = int(os.environ.get("STEPS", "60"))
TRUTH = (3.0, -2.0, 0.5)


def read_line(stream):
    return json.loads(stream.readline())


def send(stream, value):
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def connect(address, patience=60.0):
    deadline = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection(address, 5)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def introduce(port):
    """Every rank's address and port, by rank. Rank 0 collects and hands out."""
    if RANK == 0:
        with socket.create_server(("", MASTER[1])) as door:
            own = socket.gethostbyname(MASTER[0])
            addresses, streams = {0: (own, port)}, []
            while len(addresses) < WORLD:
                guest, (host, _) = door.accept()
                stream = guest.makefile("rwb")
                rank, guest_port = read_line(stream)
                addresses[rank] = (host, guest_port)
                streams.append(stream)
            for stream in streams:
                send(stream, sorted(addresses.items()))
                stream.close()
            return addresses
    with connect(MASTER) as guest, guest.makefile("rwb") as stream:
        send(stream, [RANK, port])
        return {rank: tuple(address) for rank, address in read_line(stream)}


class Ring:
    def __init__(self):
        listener = socket.create_server(("", 0))
        addresses = introduce(listener.getsockname()[1])
        self._right = connect(addresses[(RANK + 1) % WORLD]).makefile("rwb")
        left, _ = listener.accept()
        self._left = left.makefile("rwb")
        listener.close()

    def sum(self, values):
        """The sum of everybody's values: each passes on what it got, until all has been everywhere."""
        total, travelling = list(values), list(values)
        for _ in range(WORLD - 1):
            send(self._right, travelling)
            travelling = read_line(self._left)
            total = [a + b for a, b in zip(total, travelling, strict=True)]
        return total


def main():
    ring = Ring()
    print(f"rank {RANK} of {WORLD} is in the ring", flush=True)
    dice = random.Random(RANK)
    # Every rank has data of its own, and most never see one of the inputs: alone they could not learn its weight.
    points = [[0.0 if i == RANK else dice.gauss(0, 1) for i in range(len(TRUTH))] for _ in range(50)]
    wanted = [sum(t * x for t, x in zip(TRUTH, point, strict=True)) for point in points]
    weights = [0.0] * len(TRUTH)
    for step in range(STEPS):
        errors = [sum(w * x for w, x in zip(weights, p, strict=True)) - y for p, y in zip(points, wanted, strict=True)]
        loss = sum(e * e for e in errors) / len(errors)
        slopes = [sum(e * p[i] for e, p in zip(errors, points, strict=True)) for i in range(len(TRUTH))]
        gradient = [2 * slope / len(errors) for slope in slopes]
        *mean, loss = (value / WORLD for value in ring.sum([*gradient, loss]))
        weights = [w - 0.1 * g for w, g in zip(weights, mean, strict=True)]
        if RANK == 0 and step % 20 == 0:
            print(f"step {step} loss {loss:.6f}", flush=True)
    print(f"rank {RANK} final loss {loss:.6f} weights {[round(w, 3) for w in weights]}", flush=True)


main()
