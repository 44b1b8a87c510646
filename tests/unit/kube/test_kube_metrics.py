"""Metrics: each fact under its name, in a registry of our own."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY, CollectorRegistry

from trainmaster.kube.controller import Controller
from trainmaster.kube.metrics import KubeMetrics
from trainmaster.kube.queue import WorkQueue
from trainmaster.testing import clock


def value(metrics: KubeMetrics, name: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"trainmaster_{name}", labels)


def test_requests_are_counted_and_timed() -> None:
    metrics = KubeMetrics()

    metrics.request("GET", "pods", 200, 0.02)
    metrics.request("GET", "pods", "unreachable", 3.0)

    assert value(metrics, "api_requests_total", verb="GET", resource="pods", code="200") == 1
    assert value(metrics, "api_requests_total", verb="GET", resource="pods", code="unreachable") == 1
    assert value(metrics, "api_request_duration_seconds_sum", verb="GET", resource="pods") == pytest.approx(3.02)


def test_a_queue_and_its_controller_are_counted() -> None:
    metrics = KubeMetrics()
    attempts: list[str] = []

    async def reconcile(key: str) -> float | None:
        attempts.append(key)
        await asyncio.sleep(2)
        if len(attempts) == 1:
            raise OSError
        return 1000.0 if key == "a" else None

    async def main() -> None:
        queue = WorkQueue[str](observer=metrics.queue("jobs"))
        controller = Controller("jobs", reconcile, queue, metrics=metrics.controller("jobs"))
        queue.add("a")
        queue.add("b")
        assert value(metrics, "workqueue_depth", name="jobs") == 2
        async with asyncio.TaskGroup() as group:
            group.create_task(controller.run(), name="controller")
            await asyncio.sleep(60)
            await controller.stop(0)

    clock.run(main())

    assert value(metrics, "workqueue_depth", name="jobs") == 0
    assert value(metrics, "workqueue_adds_total", name="jobs") == 3
    assert value(metrics, "workqueue_retries_total", name="jobs") == 1
    assert value(metrics, "workqueue_queue_duration_seconds_count", name="jobs") == 3
    assert value(metrics, "reconcile_duration_seconds_sum", controller="jobs") == pytest.approx(6)
    results = {
        result: value(metrics, "reconcile_total", controller="jobs", result=result)
        for result in ("success", "requeue", "error", "terminal")
    }
    assert results == {"success": 1, "requeue": 1, "error": 1, "terminal": 0}


def test_leadership_is_one_or_zero() -> None:
    metrics = KubeMetrics()

    before = value(metrics, "leader")
    metrics.leader(True)
    during = value(metrics, "leader")
    metrics.leader(False)

    assert (before, during, value(metrics, "leader")) == (0, 1, 0)


def test_events_are_counted_by_what_became_of_them() -> None:
    metrics = KubeMetrics()

    metrics.event("created")
    metrics.event("created")
    metrics.event("dropped")

    assert value(metrics, "events_total", result="created") == 2
    assert value(metrics, "events_total", result="dropped") == 1


def test_the_exposition_is_text_that_every_scraper_reads() -> None:
    metrics = KubeMetrics()
    metrics.leader(True)

    body, content_type = metrics.render()

    assert content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert b"\ntrainmaster_leader 1.0\n" in body
    assert b"process_resident_memory_bytes" in body
    assert b"_created" not in body


def test_registries_do_not_share_anything() -> None:
    first, second = KubeMetrics(), KubeMetrics(CollectorRegistry())

    first.leader(True)

    assert value(second, "leader") == 0
    assert REGISTRY.get_sample_value("trainmaster_leader") is None
