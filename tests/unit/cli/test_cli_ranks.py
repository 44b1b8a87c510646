"""Which rank failed first, when the others ended because of it."""

import pytest

from trainmaster.cli.ranks import RankView, first_to_fail

LAST = "2023-11-14T22:14:{:02}Z"


def a_view(title, code, at, *, told=None, restarted=False):
    """`told` is the second in which it was deleted, with 30 seconds of grace."""
    state = {"terminated": {"exitCode": code, "finishedAt": LAST.format(at)}}
    deleted = {"deletionTimestamp": LAST.format(told + 30), "deletionGracePeriodSeconds": 30} if told else {}
    status = {"name": "main", "lastState" if restarted else "state": state}
    return RankView(title, {"metadata": {"name": f"j-{title}", **deleted}, "status": {"containerStatuses": [status]}})


@pytest.mark.parametrize(
    ("views", "first"),
    [
        ([a_view("worker-0", 1, 9), a_view("worker-1", 3, 8)], "worker-1"),
        ([a_view("worker-0", 143, 8, told=8), a_view("launcher", 128, 8)], "launcher"),
        ([a_view("worker-0", 1, 9, told=8), a_view("launcher", 128, 9)], "launcher"),
        ([a_view("worker-0", 143, 8, told=8), a_view("launcher", 1, 8, told=8)], "launcher"),
        ([a_view("worker-0", 143, 8), a_view("worker-1", 1, 8)], "worker-1"),
        ([a_view("worker-0", 3, 7, told=8), a_view("worker-1", 1, 8)], "worker-0"),
        ([a_view("worker-0", 3, 7, told=9, restarted=True), a_view("worker-1", 1, 8)], "worker-0"),
    ],
    ids=[
        "the earlier",
        "not who was told in the same second",
        "not who was told, with a code of its own",
        "when all were deleted, not who ended by a signal",
        "of equals, not who ended by a signal",
        "who had failed before it was told",
        "who had failed, was started again, and then told",
    ],
)
def test_the_first_to_fail_is_the_earliest_that_was_not_told_to_end(views, first):
    found = first_to_fail(views)

    assert found is not None
    assert found[0].title == first


def test_when_all_were_told_to_end_none_failed():
    assert first_to_fail([a_view("worker-0", 143, 9, told=8), a_view("worker-1", 1, 10, told=8)]) is None
