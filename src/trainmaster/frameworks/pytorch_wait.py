"""How a PyTorch worker waits for its master before its own containers start.

training-operator 1.9 runs `nslookup` in alpine, which every worker must pull, and gives up after 200 s. By default we
wait in the worker's own image, for half an hour at most, until the master's name resolves: that is, until its pod has
an address. We do not try its port: a connection that comes and goes is one that the master's program has to cope with,
and not every program does. torch itself retries a port that is not open yet. Should the image have no Python, the wait
is skipped. What is waited for is said after five seconds, then once a minute: more would drown why it does not come.

The wait may use what its container may. That costs nothing, for a pod needs the larger of the two; with less, Python is
throttled for a third of a second before it can look for the first time, and a Guaranteed pod would not be one.
"""

from __future__ import annotations

from trainmaster.api.job import Member
from trainmaster.objects import template, yamldocument
from trainmaster.objects.meta import Json

NAME = "init-pytorch"

_WAIT = """\
import socket, sys, time
for second in range(1800):
    try:
        socket.getaddrinfo(sys.argv[1], None)
        sys.exit()
    except OSError:
        if second % 60 == 5:
            print("waiting for the name", sys.argv[1], flush=True)
        time.sleep(1)
sys.exit("the master has had no address for half an hour")
"""

_IN_OWN_IMAGE = 'python=$(command -v python3 || command -v python) || exit 0; exec "$python" -E -S -c "$0" "$@"'
_SHARED = ("cpu", "memory")

_IN_FOREIGN_IMAGE = """\
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources:
    limits: {cpu: 100m, memory: 20Mi}
    requests: {cpu: 50m, memory: 10Mi}
  command:
  - sh
  - -c
  - tries=0;
    while [ $tries -lt {{.MaxTries}} ]; do
      if nslookup {{.MasterAddr}}; then exit 0; fi;
      tries=$((tries + 1)); echo waiting for master; sleep 2;
    done; exit 1
"""


def init_containers(pod: Json, member: Member) -> list[Json]:
    chosen = member.job.settings.init_container
    if chosen.template:
        return _rendered(chosen.template, member)
    match chosen.mode:
        case "never":
            return []
        case "always":
            return _rendered(_IN_FOREIGN_IMAGE, member)
        case _:
            return [_in_own_image(pod, member)]


def _in_own_image(pod: Json, member: Member) -> Json:
    own = template.container_named(pod, ("pytorch",)) or {}
    pull = {"imagePullPolicy": own["imagePullPolicy"]} if "imagePullPolicy" in own else {}
    return {
        "name": NAME,
        "image": own.get("image", ""),
        **pull,
        "command": ["sh", "-c", _IN_OWN_IMAGE, _WAIT, member.job.host("Master")],
        "resources": _as_much_as(own),
    }


def _as_much_as(own: Json) -> Json:
    return {
        which: {name: amount for name, amount in amounts.items() if name in _SHARED}
        for which, amounts in (own.get("resources") or {}).items()
        if which in ("limits", "requests") and amounts
    }


def _rendered(text: str, member: Member) -> list[Json]:
    """The upstream template's three variables, in either spelling of the braces."""
    chosen = member.job.settings.init_container
    values = {
        "MasterAddr": member.job.host("Master"),
        "InitContainerImage": chosen.image,
        "MaxTries": str(chosen.max_tries),
    }
    for name, value in values.items():
        text = text.replace("{{." + name + "}}", value).replace("{{ ." + name + " }}", value)
    containers: list[Json] = yamldocument.document(text)
    return containers
