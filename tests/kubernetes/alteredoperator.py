"""The operator's own process with a few things in it that a test can turn, named by environment variables.

CLOCK           a file: by the seconds that stand in it, the wall clock differs from the true one, from then on
WATCH_SECONDS   how long a watch lasts, in place of minutes; and beyond that, how long the server may be silent
ANSWER_SECONDS  how long an answer may take, in place of a minute
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from trainmaster.cli import main
from trainmaster.kube import client, watch
from trainmaster.operator import main as operating

GRACE = 2.0


def stepped() -> float:
    return time.time() + float(Path(os.environ["CLOCK"]).read_text())


def alter() -> None:
    """Defaults are turned, so that all the rest is as users start it."""
    if "CLOCK" in os.environ:
        _defaults(operating.operate)["now"] = stepped
    if "WATCH_SECONDS" in os.environ:
        seconds = int(os.environ["WATCH_SECONDS"])
        watch._WATCH_SECONDS, client._WATCH_GRACE = (seconds, seconds), GRACE
    if "ANSWER_SECONDS" in os.environ:
        _defaults(client.Client.__init__)["timeout"] = float(os.environ["ANSWER_SECONDS"])


def _defaults(function: Any) -> dict[str, Any]:
    defaults: dict[str, Any] = function.__kwdefaults__
    return defaults


if __name__ == "__main__":
    alter()
    main()
