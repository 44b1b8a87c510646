"""What conditions say, in the words of each kind's first operator."""

from __future__ import annotations

from dataclasses import dataclass

from trainmaster.api.job import Job


@dataclass(frozen=True, slots=True)
class Messages:
    """Texts of conditions; users' scripts read them, so each kind keeps its own."""

    created: str = "{kind} {name} is created."
    running: str = "{kind} {name} is running."
    suspended: str = "{kind} {name} is suspended."
    stopped: str = "{kind} {name} is suspended."
    """Why a suspended job does not run."""

    resumed: str = "{kind} {name} is resumed."
    never_ran: str = ""
    """Said of a job that ended before it was seen running; empty says nothing."""

    succeeded: str = "{kind} {name} is successfully completed."
    failed: str = "{kind} {name} is failed because {count} {role} replica(s) failed."
    restarting: str = "{kind} {name} is restarting because {count} {role} replica(s) failed."
    replacing: str = "job {name} is restarting because {role} replica(s) failed."
    """While it is we who replace the pods."""

    failing: str = 'job "{name}" is failing because "{role}" replica(s) failed.'
    """Of an exit code that rules out another try."""

    def text(self, which: str, job: Job, **more: object) -> str:
        template: str = getattr(self, which)
        return template.format(kind=job.kind, namespace=job.namespace, name=job.name, **more)


QUALIFIED = Messages(
    running="{kind} {namespace}/{name} is running.",
    succeeded="{kind} {namespace}/{name} successfully completed.",
)
