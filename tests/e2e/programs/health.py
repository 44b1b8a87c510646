# ruff: noqa: T201  (it runs in a container: what it prints is its log)
"""A real gRPC server whose health is what the file $STATE says, for the whole and for the service `trainer`."""

import os
import sys
from concurrent import futures

import grpc  # type: ignore[import-untyped]  # in its environment only

STATES = {"serving": 1, "not serving": 2}
SERVICES = (b"", b"\x0a\x07trainer")  # as HealthCheckRequest names them


def check(request: bytes, context: grpc.ServicerContext) -> bytes:
    if request not in SERVICES:
        context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
    with open(os.environ["STATE"]) as file:
        return bytes([0x08, STATES[file.read()]])


server = grpc.server(futures.ThreadPoolExecutor(2))
method = grpc.unary_unary_rpc_method_handler(check)
server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method})])
server.add_insecure_port(sys.argv[1])
server.start()
print("listening", flush=True)
server.wait_for_termination()
