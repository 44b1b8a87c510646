"""`python -m benchmarks [NAME...]`: a table for people on stderr, JSON for machines on stdout."""

from __future__ import annotations

import json
import os
import sys
import time

from benchmarks import apiserver, crowd, large, operator, pods, startup, webhook
from benchmarks.measure import Benchmark, Result, lines_of, rounded
from benchmarks.targets import verdicts
from trainmaster.kube import connections

BENCHMARKS = (
    Benchmark("apiserver", "requests per second, embedded and real API server", apiserver.run, 2),
    Benchmark("startup", "seconds from the command to training, and to its end", startup.run, 8),
    Benchmark("pods", "a thousand pods of `true` through the embedded cluster", pods.run, 3),
    Benchmark("operator", "the operator on a real control plane, beside a floor that only POSTs", operator.run, 6),
    Benchmark("crowd", "the operator among thousands of jobs and pods, and at rest", crowd.run, 15),
    Benchmark("large", "jobs of ten thousand workers, of every kind: seconds and memory", large.run, 4),
    Benchmark("webhook", "milliseconds to an answer of the admission webhook, under load", webhook.run, 2),
)


def main(names: list[str]) -> int:
    unknown = set(names) - {one.name for one in BENCHMARKS}
    if unknown:
        known = ", ".join(one.name for one in BENCHMARKS)
        print(f"no such benchmark: {', '.join(sorted(unknown))}; there are {known}", file=sys.stderr)
        return 2
    connections.slim_down()  # floors are to be as low as they can
    results = {one.name: _measured(one) for one in BENCHMARKS if not names or one.name in names}
    for line in verdicts(results):
        print(line, file=sys.stderr)
    print(json.dumps({"machine": _machine(), **results}, indent=2))
    return 0


def _measured(benchmark: Benchmark) -> Result:
    load = os.getloadavg()[0]
    started = time.monotonic()
    print(f"{benchmark.name}: {benchmark.title}; about {benchmark.minutes} minutes …", file=sys.stderr)
    result: Result = rounded(benchmark.run())
    for line in lines_of(result):
        print(line, file=sys.stderr)
    took = time.monotonic() - started
    return {**result, "load before": round(load, 2), "seconds": round(took, 1)}


def _machine() -> Result:
    return {"processors": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0]}


sys.exit(main(sys.argv[1:]))
