"""Why a scheduler does not place a pod, from its own sentence to what to do: of ours, kube-scheduler and Volcano.

Asked in order: what a pod waits for that is not there goes before where it might be placed if it were.
"""

from __future__ import annotations

import re

_CLAIM = re.compile(
    r"PersistentVolumeClaim (\S+) (does not exist|is not bound)|persistentvolumeclaim \"(\S+)\" not found"
)
_UNBOUND = re.compile(r"unbound immediate PersistentVolumeClaims|persistent volumes to bind")
_NO_GROUP = re.compile(r"\bgroup (\S+) does not exist|\bpodgroups?\S* \"(\S+)\" not found", re.IGNORECASE)
_FEW = re.compile(r"; \d+ exist$|not all of them exist|enough sibling pods|pod group is not ready")
_CLOSED = re.compile(r"\bqueue (\S+) is closed")
_QUEUE = re.compile(r"\bqueue (\S+) (?:has|keeps)\b|queue resource quota insufficient")
_AMOUNT = re.compile(
    r"\b(?:Insufficient \S|Too many pods|more needed|in all\b|not fit\b|no room\b|of \S+ free\b|free \S+ kept for\b)"
)
_GATES = re.compile(r"scheduling gates")
_NODE = re.compile(
    r"no label|taint|cordoned|unschedulable|affinity|selector|host port|free ports|to spread by|topology spread|"
    r"above the fewest|there is none",
    re.IGNORECASE,
)


def remedy_of(what: str, message: str) -> str:
    """`what` waits, as the scheduler says in `message`."""
    return _of_missing(what, message) or _of_queue(what, message) or _of_nodes(what, message)


def _of_missing(what: str, message: str) -> str:
    if found := _CLAIM.search(message):
        name = found[1] or found[3]
        if found[2] == "is not bound":
            return f"{what} waits for a volume: see why with: trainmaster describe pvc/{name}."
        return f"Nobody has made the PersistentVolumeClaim {name} that {what} mounts: apply it, or correct claimName."
    if _UNBOUND.search(message):
        return f"{what} waits for a volume: see with `trainmaster get pvc` which of its claims is not Bound, and why."
    if found := _NO_GROUP.search(message):
        return (
            f"Nobody has made the PodGroup {found[1] or found[2]} that {what} is to be placed with: apply it, or "
            "correct its name in the pod template (annotation scheduling.k8s.io/group-name, label "
            "scheduling.x-k8s.io/pod-group)."
        )
    if _FEW.search(message):
        return (
            "Fewer pods exist than are to be placed together: lower runPolicy.schedulingPolicy.minAvailable (minMember "
            "of a PodGroup that you have made yourself) to what the job has, or give it more replicas."
        )
    if _GATES.search(message):
        return f"{what} is held back by its schedulingGates: whoever has set them has to take them away."
    return ""


def _of_queue(what: str, message: str) -> str:
    if found := _CLOSED.search(message):
        return f"Open the queue {found[1]}, or name another in runPolicy.schedulingPolicy.queue."
    if found := _QUEUE.search(message):
        name = f"queue {found[1]}" if found[1] else "its queue"
        return (
            f"No more is left to {name} for {what}: wait until others in it have ended, lower resources.requests, "
            "or raise the queue's capability."
        )
    return ""


def _of_nodes(what: str, message: str) -> str:
    if _AMOUNT.search(message):
        also = ", or check nodeSelector, affinity and tolerations" if _NODE.search(message) else ""
        return (
            f"There is no room for {what}: lower resources.requests, free or add capacity{also}; the message above has "
            "the numbers."
        )
    if _NODE.search(message):
        return (
            f"No node is one that {what} may run on: check its nodeSelector, affinity, tolerations and host ports, "
            "and the labels and taints of the nodes."
        )
    return f"Mend what the message above names, so that {what} can be placed."
