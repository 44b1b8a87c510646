"""What the machinery counts, for Prometheus. The only file of this room that imports its library.

`KubeMetrics` declares everything. Its neighbours know small protocols only and are handed what fits: `queue(name)`,
`controller(name)`, and as callbacks `request`, `leader` and `event`. The registry is our own, so that what other
libraries count does not turn up among ours, and two managers in one process do not clash.
"""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"  # the one that every scraper reads

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""A request takes milliseconds; a reconcile that creates thousands of objects may take a minute."""

# A second series beside every counter, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library leaves it untyped


class KubeMetrics:
    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = _new_registry() if registry is None else registry
        self._requests = self._counter("api_requests", "Requests to the API server", "verb", "resource", "code")
        self._request_seconds = self._histogram("api_request_duration", "Time to an answer", "verb", "resource")
        self._depth = self._gauge("workqueue_depth", "Keys that wait for a worker", "name")
        self._adds = self._counter("workqueue_adds", "Keys put in line", "name")
        self._waited = self._histogram("workqueue_queue_duration", "Time a key waits for a worker", "name")
        self._retries = self._counter("workqueue_retries", "Keys put back after a failure", "name")
        self._reconciles = self._counter("reconcile", "Reconciles by how they ended", "controller", "result")
        self._reconcile_seconds = self._histogram("reconcile_duration", "Time a reconcile takes", "controller")
        self._leader = self._gauge("leader", "1 while this process may write: it leads, or there is no election")
        self._events = self._counter("events", "Kubernetes events by what became of them", "result")

    def request(self, verb: str, resource: str, code: int | str, seconds: float) -> None:
        self._requests.labels(verb, resource, code).inc()
        self._request_seconds.labels(verb, resource).observe(seconds)

    def queue(self, name: str) -> QueueMetrics:
        return QueueMetrics(
            self._depth.labels(name), self._adds.labels(name), self._waited.labels(name), self._retries.labels(name)
        )

    def controller(self, name: str) -> ControllerMetrics:
        return ControllerMetrics(name, self._reconciles, self._reconcile_seconds)

    def leader(self, is_leader: bool) -> None:
        self._leader.set(is_leader)

    def event(self, result: str) -> None:
        self._events.labels(result).inc()

    def render(self) -> tuple[bytes, str]:
        """What `/metrics` answers, and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"trainmaster_{name}_total", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"trainmaster_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"trainmaster_{name}_seconds", text, labels, registry=self.registry, buckets=SECONDS)


class QueueMetrics:
    """A `queue.Observer`. Labels are looked up once, not for every key."""

    def __init__(self, depth: Gauge, adds: Counter, waited: Histogram, retries: Counter) -> None:
        self._depth, self._adds, self._waited, self._retries = depth, adds, waited, retries

    def on_add(self) -> None:
        self._adds.inc()
        self._depth.inc()

    def on_get(self, waited: float) -> None:
        self._depth.dec()
        self._waited.observe(waited)

    def on_done(self, worked: float) -> None:
        """Not counted: the controller's reconcile duration says the same."""

    def on_retry(self) -> None:
        self._retries.inc()


class ControllerMetrics:
    """A `controller.ControllerMetrics`. All results are there from the start, so that a rate has a zero to begin at."""

    def __init__(self, name: str, results: Counter, seconds: Histogram) -> None:
        self._results = {result: results.labels(name, result) for result in ("success", "requeue", "error", "terminal")}
        self._seconds = seconds.labels(name)

    def observe(self, result: str, seconds: float) -> None:
        self._results[result].inc()
        self._seconds.observe(seconds)


def _new_registry() -> CollectorRegistry:
    """With the memory, CPU time and open files of this process, which every dashboard asks for."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return registry
