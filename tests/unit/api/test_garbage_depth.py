"""Nesting has no bound in JSON; reading has one, and says so."""

from trainmaster.testing.scene import a_job


def test_a_spec_nested_too_deeply_is_a_problem_and_no_crash():
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}

    problems = a_job("JAXJob").role("Worker").spec(extra=deep).problems

    assert problems == ["spec: Forbidden: is nested too deeply"]
