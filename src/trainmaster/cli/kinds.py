"""Kinds that nobody here runs: most often a kind or an apiVersion that is misspelt."""

from __future__ import annotations

import difflib

from trainmaster import frameworks
from trainmaster.cli.documents import Document


def looks_like_a_job(document: Document) -> bool:
    """Jobs often come with the volumes they mount; a kind that looks like a job is more likely a mistake."""
    return str(document.body["kind"]).endswith("Job") and document.body.get("apiVersion") != "batch/v1"


def unknown(document: Document) -> str:
    """What to write instead."""
    written = f"{document.body.get('apiVersion')} {document.body['kind']}"
    known = sorted(_known())
    close = difflib.get_close_matches(written.lower(), {name.lower(): name for name in known}, n=1, cutoff=0.85)
    told = f"{document}: no framework runs {written}"
    if close:
        return f"{told}; did you mean {next(name for name in known if name.lower() == close[0])}?"
    return f"{told}; known are:\n  " + "\n  ".join(known)


def _known() -> set[str]:
    return {
        f"{resource.group}/{version} {resource.kind}"
        for framework in frameworks.registered()
        for resource in framework.served
        for version in (resource.version, *(framework.older_versions if resource == framework.resource else ()))
        if version not in framework.deprecated
    }
