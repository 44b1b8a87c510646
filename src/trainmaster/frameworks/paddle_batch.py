"""PaddleJob of batch.paddlepaddle.org, as paddle-operator had it: ps, worker and heter stand in the spec itself.

`paddle_batch_roles` says what such a job is; `paddle_batch_tasks` has the jobs that are written as lists of tasks.
"""

from __future__ import annotations

from trainmaster.api.framework import Framework
from trainmaster.frameworks.paddle_batch_roles import PaddleRoles
from trainmaster.frameworks.paddle_batch_tasks import dialect_of
from trainmaster.objects.meta import Json


class PaddleBatch(PaddleRoles):
    """Both ways of writing it."""

    def dialect(self, raw: Json) -> Framework:
        return dialect_of(raw) or self
