"""What Kubernetes takes as names, labels, annotations and metadata, and how it says no.

Every check returns what is wrong as sentences or as `Cause`s with the field's path; nothing here raises. The
sentences are those of the real API server, because people search for them. Pods, Services and other kinds have rules
of their own in `admission_*`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeAlias

from trainmaster.cluster.registry.status_error import Cause, forbidden_field, invalid_value, required

NameRule: TypeAlias = Callable[[str], list[str]]

_LABEL_FORM = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_LABEL_FORM, re.ASCII)
_SUBDOMAIN_FORM = rf"{_LABEL_FORM}(\.{_LABEL_FORM})*"
_SUBDOMAIN = re.compile(_SUBDOMAIN_FORM, re.ASCII)
_DNS_1035_FORM = "[a-z]([-a-z0-9]*[a-z0-9])?"
_DNS_1035 = re.compile(_DNS_1035_FORM, re.ASCII)
_QUALIFIED_FORM = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_QUALIFIED = re.compile(_QUALIFIED_FORM, re.ASCII)
_LABEL_VALUE_FORM = rf"({_QUALIFIED_FORM})?"
_LABEL_VALUE = re.compile(_LABEL_VALUE_FORM, re.ASCII)

_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
_MAX_ANNOTATIONS = 256 * 1024

BAD_SUBDOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_FORM}')"
)
BAD_LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    f"an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL_FORM}')"
)
BAD_DNS_1035 = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, "
    "and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is "
    f"'{_DNS_1035_FORM}')"
)
_BAD_QUALIFIED = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_QUALIFIED_FORM}')"
)
_BAD_LABEL_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_LABEL_VALUE_FORM}')"
)


def subdomain_problems(name: str) -> list[str]:
    return _problems(name, 253, _SUBDOMAIN, BAD_SUBDOMAIN)


def label_problems(name: str) -> list[str]:
    return _problems(name, 63, _LABEL, BAD_LABEL)


def dns_1035_problems(name: str) -> list[str]:
    return _problems(name, 63, _DNS_1035, BAD_DNS_1035)


def path_segment_problems(name: str) -> list[str]:
    """RBAC objects may have any name that can be one step of a URL path."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{part}'" for part in ("/", "%") if part in name]


def ip_problems(text: str) -> list[str]:
    """A scope (`fe80::1%eth0`) is a matter of one machine, so no object may name one."""
    try:
        ipaddress.ip_address(text.replace("%", "/"))
    except ValueError:
        return ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]
    return []


def _problems(text: str, limit: int, form: re.Pattern[str], complaint: str) -> list[str]:
    problems = [f"must be no more than {limit} characters"] if len(text) > limit else []
    return problems if form.fullmatch(text) else [*problems, complaint]


@lru_cache(maxsize=4096)
def _qualified_problems(key: str) -> tuple[str, ...]:
    prefix, slash, name = key.rpartition("/")
    problems: list[str] = []
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return (f"a qualified name {_BAD_QUALIFIED} {example}",)
    if slash:
        found = ["must be non-empty"] if not prefix else subdomain_problems(prefix)
        problems += [f"prefix part {problem}" for problem in found]
    if not name:
        problems.append("name part must be non-empty")
    elif len(name) > 63:
        problems.append("name part must be no more than 63 characters")
    if not _QUALIFIED.fullmatch(name):
        problems.append(f"name part {_BAD_QUALIFIED}")
    return tuple(problems)


def label_key_problems(key: str) -> list[str]:
    return list(_qualified_problems(key))


@lru_cache(maxsize=4096)
def _label_value_problems(value: str) -> tuple[str, ...]:
    return tuple(_problems(value, 63, _LABEL_VALUE, _BAD_LABEL_VALUE))


def label_value_problems(value: str) -> list[str]:
    return list(_label_value_problems(value))


def check_labels(labels: Mapping[str, str] | None, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in (labels or {}).items():
        causes += [invalid_value(field, key, problem) for problem in _qualified_problems(key)]
        causes += [invalid_value(field, value, problem) for problem in _label_value_problems(value)]
    return causes


def check_annotations(annotations: Mapping[str, str] | None, field: str) -> list[Cause]:
    causes: list[Cause] = []
    for key in annotations or {}:
        causes += [invalid_value(field, key, problem) for problem in _qualified_problems(key.lower())]
    size = sum(len(key) + len(value) for key, value in (annotations or {}).items())
    if size > _MAX_ANNOTATIONS:
        causes.append(Cause("FieldValueTooLong", field, f"Too long: must have at most {_MAX_ANNOTATIONS} bytes"))
    return causes


def check_metadata(metadata: Mapping[str, Any], name_rule: NameRule, *, namespaced: bool) -> list[Cause]:
    """An object's metadata as it is about to be stored."""
    causes: list[Cause] = []
    name = metadata.get("name") or ""
    if prefix := metadata.get("generateName"):
        # The server appends five characters, so a trailing dash is fine here.
        checked = f"{prefix[:-1]}a" if prefix.endswith("-") else prefix
        causes += [invalid_value("metadata.generateName", prefix, problem) for problem in name_rule(checked)]
    if not name:
        causes.append(required("metadata.name", "name or generateName is required"))
    else:
        causes += [invalid_value("metadata.name", name, problem) for problem in name_rule(name)]
    if metadata.get("namespace") and not namespaced:
        causes.append(forbidden_field("metadata.namespace", "not allowed on this type"))
    causes += check_labels(metadata.get("labels"), "metadata.labels")
    causes += check_annotations(metadata.get("annotations"), "metadata.annotations")
    causes += check_owners(metadata.get("ownerReferences"))
    causes += _check_finalizers(metadata.get("finalizers"))
    return causes


def check_owners(owners: list[Mapping[str, Any]] | None) -> list[Cause]:
    field = "metadata.ownerReferences"
    causes: list[Cause] = []
    controllers: list[str] = []
    for owner in owners or ():
        if not owner.get("apiVersion"):
            causes.append(invalid_value(f"{field}.apiVersion", "", "version must not be empty"))
        missing = [key for key in ("kind", "name", "uid") if not owner.get(key)]
        causes += [invalid_value(f"{field}.{key}", "", f"{key} must not be empty") for key in missing]
        if owner.get("controller"):
            controllers.append(f"{owner.get('kind')}/{owner.get('name')}")
    if len(controllers) > 1:
        detail = 'Only one reference can have Controller set to true. Found "true" in references for'
        causes.append(invalid_value(field, owners, f"{detail} {controllers[0]} and {controllers[1]}"))
    return causes


def _check_finalizers(finalizers: list[str] | None) -> list[Cause]:
    causes: list[Cause] = []
    for finalizer in finalizers or ():
        problems = _qualified_problems(finalizer)
        causes += [invalid_value("metadata.finalizers", finalizer, problem) for problem in problems]
    return causes


def check_own_finalizers(finalizers: list[str] | None) -> list[Cause]:
    """Kubernetes' own kinds take its own finalizers, and others only with the domain they are from."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"metadata.finalizers[{index}]", finalizer, detail)
        for index, finalizer in enumerate(finalizers or ())
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def check_metadata_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """What may never change once an object exists."""
    causes = [
        invalid_value(f"metadata.{key}", new.get(key) or "", "field is immutable")
        for key in ("name", "namespace", "uid", "creationTimestamp")
        if (new.get(key) or "") != (old.get(key) or "")
    ]
    if old.get("deletionTimestamp"):
        added = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
        if added:
            shown = ", ".join(f'"{name}"' for name in added)
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers"
            causes.append(forbidden_field("metadata.finalizers", f"{detail} []string{{{shown}}}"))
    return causes
