"""Writes the files that are derived from the code; with --check, says which of them are out of date.

Everything below `deploy/`, `docs/kinds/` and `docs/reference/` is derived: a file there that nothing derives any more
is out of date as well.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from tools import generate_helm, generate_kustomize, generate_reference
from tools.generate_text import documents
from trainmaster import frameworks
from trainmaster.operator.install import Installation, manifests

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"


def derived() -> Iterator[tuple[Path, str]]:
    """Every derived file and what it should hold."""
    known = frameworks.BUILT_IN
    yield DEPLOY / "trainmaster.yaml", documents(manifests(Installation(known)))
    for path, text in generate_kustomize.files(known):
        yield DEPLOY / "kustomize" / path, text
    for path, text in generate_helm.files(known):
        yield DEPLOY / "helm" / "trainmaster" / path, text
    for path, text in generate_reference.files(known):
        yield ROOT / "docs" / path, text


def main(arguments: list[str]) -> int:
    wanted = dict(derived())
    stale = {path: text for path, text in wanted.items() if not path.exists() or path.read_text() != text}
    folders = (DEPLOY, *(ROOT / "docs" / folder for folder in generate_reference.FOLDERS))
    orphans = sorted(path for one in folders for path in one.rglob("*") if path.is_file() and path not in wanted)
    if "--check" in arguments:
        for path in [*stale, *orphans]:
            sys.stderr.write(f"{path.relative_to(ROOT)} is out of date; run make generate\n")
        return 1 if stale or orphans else 0
    for path, text in stale.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        sys.stdout.write(f"wrote {path.relative_to(ROOT)}\n")
    for path in orphans:
        path.unlink()
        sys.stdout.write(f"removed {path.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
