"""The summary of `run`: what became of each job, and how long each took."""

import asyncio
import io

from rich.console import Console

from trainmaster.api.status import Condition, JobStatus
from trainmaster.cli.follow import Follower, JobRef, Progress
from trainmaster.cli.screen import Screen, print_summary
from trainmaster.objects.resource import Resource
from trainmaster.testing.operation import passing

JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
QUICK, SLOW = (JobRef(JOBS, "default", name, f"uid-PyTorchJob-{name}") for name in ("quick", "slow"))


def test_each_job_is_told_with_its_own_time():
    text = io.StringIO()
    failed = JobStatus(conditions=(Condition("Failed", "True"),))
    progress = Progress({QUICK: failed, SLOW: JobStatus()}, ended={QUICK: 100.4})

    print_summary(Console(file=text, width=200), progress, {QUICK: 100.0, SLOW: 100.1}, now=102.4)

    assert "PyTorchJob quick: Failed after 0.4 s" in text.getvalue()
    assert "PyTorchJob slow: not finished after 2.3 s" in text.getvalue()


def test_the_end_of_each_job_is_noted_when_it_is_seen(stage):
    stage.job(name="quick")
    stage.job(name="slow")
    ended = {}

    async def end():
        for name, seconds in (("quick", 5), ("slow", 20)):
            await passing(seconds)
            stage.job(name=name, conditions=stage.conditions(("Succeeded", "")))

    async def work(session):
        began = asyncio.get_running_loop().time()
        progress = await Follower(session.client, [QUICK, SLOW], Screen(Console(file=io.StringIO()))).follow()
        ended.update({job.name: round(moment - began) for job, moment in progress.ended.items()})
        return 0

    stage.run("run", work, beside=end)

    assert ended == {"quick": 5, "slow": 25}
