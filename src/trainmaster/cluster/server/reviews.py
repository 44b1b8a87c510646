"""May I? Who am I? Whose token is this? The answers of a cluster with one user, who may do everything.

Reviews are questions and are not stored: the answer is the object that was sent, with its status filled in. They are
served as create-only resources, so that discovery lists them and `kubectl auth can-i` and `whoami` work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trainmaster.cluster.registry.kinds import Kind
from trainmaster.cluster.registry.status_error import invalid, invalid_value
from trainmaster.cluster.server.auth import Authenticator, Caller

_AUTHORIZATION, _AUTHENTICATION = "authorization.k8s.io", "authentication.k8s.io"
_MASTERS = "system:masters"
_ACCOUNT = "system:serviceaccount:"


def _review(group: str, kind: str, *, namespaced: bool = False) -> Kind:
    return Kind(group, "v1", f"{kind.lower()}s", kind, namespaced=namespaced, verbs=("create",))


KINDS = (
    _review(_AUTHORIZATION, "LocalSubjectAccessReview", namespaced=True),
    _review(_AUTHORIZATION, "SelfSubjectAccessReview"),
    _review(_AUTHORIZATION, "SelfSubjectRulesReview"),
    _review(_AUTHORIZATION, "SubjectAccessReview"),
    _review(_AUTHENTICATION, "SelfSubjectReview"),
    _review(_AUTHENTICATION, "TokenReview"),
)
_NAMELESS = Kind(_AUTHORIZATION, "v1", "", "")
_BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in KINDS}


def lookup(group: str, version: str, plural: str) -> Kind | None:
    return _BY_PATH.get((group, version, plural))


def answer(kind: Kind, review: dict[str, Any], caller: Caller, tokens: Authenticator) -> dict[str, Any]:
    """The review with its status."""
    spec = review.get("spec")
    status = _ANSWERS[kind.kind](spec if isinstance(spec, dict) else {}, caller, tokens)
    identity = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": review.get("metadata") or {}}
    return {**identity, **({"spec": spec} if spec is not None else {}), "status": status}


def _allowed(is_master: bool) -> dict[str, Any]:
    if is_master:
        return {"allowed": True, "reason": "members of system:masters may do everything"}
    return {"allowed": False, "reason": "only members of system:masters may use this cluster"}


def _self_access(spec: dict[str, Any], caller: Caller, tokens: Authenticator) -> dict[str, Any]:
    if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid(_NAMELESS, "", [invalid_value("spec.resourceAttributes", None, detail)])
    return _allowed(_MASTERS in caller.groups or caller.user.startswith(_ACCOUNT))


def _access(spec: dict[str, Any], caller: Caller, tokens: Authenticator) -> dict[str, Any]:
    """About someone else. Service accounts act in pods: they may do what their owner may."""
    groups = spec.get("groups") or spec.get("group") or ()
    user = str(spec.get("user") or "")
    return _allowed(_MASTERS in groups or user == caller.user or user.startswith(_ACCOUNT))


def _rules(spec: dict[str, Any], caller: Caller, tokens: Authenticator) -> dict[str, Any]:
    every = ["*"]
    resources = [{"verbs": every, "apiGroups": every, "resources": every}]
    return {
        "resourceRules": resources,
        "nonResourceRules": [{"verbs": every, "nonResourceURLs": every}],
        "incomplete": False,
    }


def _who_am_i(spec: dict[str, Any], caller: Caller, tokens: Authenticator) -> dict[str, Any]:
    return {"userInfo": _user(caller)}


def _token(spec: dict[str, Any], caller: Caller, tokens: Authenticator) -> dict[str, Any]:
    owner = tokens.caller_of_token(str(spec.get("token") or ""))
    if owner is None:
        return {"user": {}, "error": "the token is not one of this cluster"}
    return {"authenticated": True, "user": _user(owner), "audiences": spec.get("audiences") or []}


def _user(caller: Caller) -> dict[str, Any]:
    return {"username": caller.user, "groups": list(caller.groups)}


_ANSWERS: dict[str, Callable[[dict[str, Any], Caller, Authenticator], dict[str, Any]]] = {
    "LocalSubjectAccessReview": _access,
    "SelfSubjectAccessReview": _self_access,
    "SelfSubjectRulesReview": _rules,
    "SubjectAccessReview": _access,
    "SelfSubjectReview": _who_am_i,
    "TokenReview": _token,
}
