"""How ranks of plain Python meet: everybody brings a number over TCP, and everybody learns the sum.

Rank r brings 10**r, so that the sum says who took part.
"""

import json
import socket
import time

PATIENCE = 150.0


def place(text):
    """`host:port` as what a socket takes."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def own_address():
    return socket.gethostbyname(socket.gethostname())


def bring(where, value):
    """Gives a value to whoever listens there; the answer.

    The other side may still be starting or have no name yet, and a Service may lead to it before it listens.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with socket.create_connection(where, PATIENCE) as guest, guest.makefile("rw") as stream:
                print(json.dumps(value), file=stream, flush=True)
                if answer := stream.readline():
                    return json.loads(answer)
        except OSError:
            if time.monotonic() > deadline:
                raise
        assert time.monotonic() < deadline, f"nobody answers at {where}"
        time.sleep(0.05)


def gather(door, count, answer):
    """One value of each of so many guests; all are told `answer(values)`, which is returned."""
    streams = [door.accept()[0].makefile("rw") for _ in range(count)]
    told = answer([json.loads(stream.readline()) for stream in streams])
    for stream in streams:
        print(json.dumps(told), file=stream, flush=True)
        stream.close()
    return told


def serve(where, count):
    """For ever, as a parameter server does: sums what each round of so many guests brings."""
    with socket.create_server(where) as door:
        while True:
            gather(door, count, sum)


def agree(where, rank, world, number=None):
    """The sum of what all ranks bring; they meet where rank 0 is."""
    own = 10**rank if number is None else number
    if rank:
        return bring(where, own)
    with socket.create_server(("", where[1])) as door:
        return gather(door, world - 1, lambda numbers: own + sum(numbers))


def part(where, rank, world):
    """Nobody leaves before everybody has said what it has to say: the end of one may be the end of the job."""
    agree((where[0], where[1] + 1), rank, world)
