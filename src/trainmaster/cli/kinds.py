"""Kinds that nobody here runs: most often a kind or an apiVersion that is misspelt."""

from __future__ import annotations

import difflib

from trainmaster import frameworks
from trainmaster.cli.documents import Document


def looks_like_a_job(document: Document) -> bool:
    """Jobs often come with the volumes they mount; a kind that looks like a job is more likely a mistake."""
    api_version, kind = str(document.body.get("apiVersion")), str(document.body["kind"])
    if api_version.startswith("batch/"):
        return False
    return kind.casefold().removesuffix("s").endswith("job") or bool(meant(api_version, kind))


def unknown(document: Document) -> str:
    """What to write instead."""
    api_version, kind = str(document.body.get("apiVersion")), str(document.body["kind"])
    told = f"{document}: no framework runs {api_version} {kind}"
    if close := meant(api_version, kind):
        return f"{told}; did you mean {close}?"
    return f"{told}; known are:\n  " + "\n  ".join(sorted(_known()))


def meant(api_version: str, kind: str) -> str:
    """The apiVersion and kind that somebody runs and whose spelling is closest; empty where none is close, or where
    nothing is misspelt."""
    written = f"{api_version} {kind}"
    known = {name.casefold(): name for name in sorted(_known())}
    if written in known.values():
        return ""
    # A long apiVersion that is right makes any two kinds alike: they are compared by themselves as well.
    like = [name for name in known if _are_alike(kind.casefold(), name.rpartition(" ")[2])]
    close = difflib.get_close_matches(written.casefold(), like, n=1, cutoff=0.85)
    return known[close[0]] if close else ""


def _are_alike(one: str, other: str) -> bool:
    return difflib.SequenceMatcher(None, one, other).ratio() >= 0.8


def _known() -> set[str]:
    return {
        f"{resource.group}/{version} {resource.kind}"
        for framework in frameworks.registered()
        for resource in framework.served
        for version in (resource.version, *(framework.older_versions if resource == framework.resource else ()))
        if version not in framework.deprecated
    }
