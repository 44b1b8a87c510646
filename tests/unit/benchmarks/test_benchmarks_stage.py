"""How the operator's requests are counted in its own metrics, and how many things are done at once, in order."""

from __future__ import annotations

import asyncio

from benchmarks.measure import medians
from benchmarks.stage import Request, requests_in, with_each, writes

from trainmaster.kube.metrics import KubeMetrics


def metrics_of(*requests: tuple[str, str, int | str]) -> str:
    metrics = KubeMetrics()
    for verb, resource, code in requests:
        metrics.request(verb, resource, code, 0.01)
    return metrics.render()[0].decode()


def test_writes_that_were_refused_or_lost_are_requests_of_their_own() -> None:
    text = metrics_of(
        *([("PUT", "pytorchjobs", 200)] * 3),
        *(("PUT", "pytorchjobs", code) for code in (409, 500, "unreachable")),
    )

    found = requests_in(text)

    assert writes(found) == 3
    assert {str(request): count for request, count in found.items()} == {
        "PUT pytorchjobs": 3,
        "PUT pytorchjobs 409": 1,
        "PUT pytorchjobs 500": 1,
        "PUT pytorchjobs unreachable": 1,
    }


def test_answers_of_several_codes_are_added_up() -> None:
    text = metrics_of(("POST", "pods", 200), ("POST", "pods", 201), ("POST", "pods", 201), ("DELETE", "pods", 200))

    assert requests_in(text) == {Request("POST", "pods"): 3, Request("DELETE", "pods"): 1}


def test_reads_are_no_writes() -> None:
    found = requests_in(metrics_of(("GET", "pods", 200), ("GET", "", 200)))

    assert found == {Request("GET", "pods"): 1, Request("GET", ""): 1}
    assert writes(found) == 0


def test_results_come_in_the_order_of_what_they_were_made_of() -> None:
    async def after(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    assert asyncio.run(with_each([0.02, 0.0, 0.01], after)) == [0.02, 0.0, 0.01]


def test_each_figure_of_several_rounds_is_its_median() -> None:
    assert medians([{"a": 1, "b": 9}, {"a": 3, "b": 7}, {"a": 2, "b": 8}]) == {"a": 2, "b": 8}
