"""Breaks each safety claim of docs/adr on purpose, and fails where no test notices.

    python -m tools.mutants              # all of tests/mutants/*.toml
    python -m tools.mutants apply 0003   # those whose file, ADR or claim contains one of these words

The tables in tests/mutants say which claim is held by which tests, and how to break it: a text of the source and what
to put in its place. Every mutant is a copy of `src` of its own, on which only the tests named for it are run. A mutant
that survives is a claim that is no longer tested; a text that is no longer found is a table that is no longer true.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "mutants"
PACKAGE = Path("src") / "trainmaster"
PATIENCE = 120.0
"""Seconds for the tests of one mutant. One that makes them hang has been noticed."""

FAILED = 1
"""pytest's exit code where tests ran and some failed. Any other says that they could not be run."""


@dataclass(frozen=True, slots=True)
class Mutant:
    adr: str
    claim: str
    tests: tuple[str, ...]
    file: str
    """Below src/trainmaster."""
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.file}: {_line(self.old)} -> {_line(self.new) or '(nothing)'}"


@dataclass(frozen=True, slots=True)
class Result:
    mutant: Mutant
    verdict: str
    """`killed`, or what is wrong."""
    output: str = ""


def main(words: Sequence[str]) -> int:
    chosen = [mutant for mutant in mutants() if _is_chosen(mutant, words)]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        results = list(pool.map(_judged, chosen))
    _print(results)
    bad = [result for result in results if result.verdict != "killed"]
    for result in bad:
        sys.stderr.write(f"\n{result.verdict}: {result.mutant}\n{result.output}\n")
    sys.stdout.write(f"\n{len(results) - len(bad)} of {len(results)} mutants killed\n")
    return 1 if bad or not results else 0


def mutants(tables: Path = TABLES) -> Iterator[Mutant]:
    for path in sorted(tables.glob("*.toml")):
        for claim in tomllib.loads(path.read_text())["claim"]:
            for mutant in claim["mutant"]:
                yield _mutant(claim, mutant)


def _mutant(claim: dict[str, Any], mutant: dict[str, Any]) -> Mutant:
    tests = tuple(mutant.get("tests") or claim["tests"])
    return Mutant(claim["adr"], claim["says"], tests, mutant["file"], mutant["old"], mutant["new"])


def mutated(mutant: Mutant, source: str) -> str:
    """The source with the one place changed. ValueError where it is not there, or there more than once."""
    if (count := source.count(mutant.old)) != 1:
        raise ValueError(f"its text is found {count} times in {mutant.file}: bring tests/mutants up to date")
    return source.replace(mutant.old, mutant.new)


def _is_chosen(mutant: Mutant, words: Sequence[str]) -> bool:
    text = f"{mutant.file} {mutant.adr} {mutant.claim}"
    return not words or any(word in text for word in words)


def _judged(mutant: Mutant) -> Result:
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "trainmaster"
        shutil.copytree(ROOT / PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        path = copy / mutant.file
        try:
            path.write_text(mutated(mutant, path.read_text()))
        except (ValueError, FileNotFoundError) as error:
            return Result(mutant, "not found", str(error))
        return _tested(mutant, Path(folder))


def _tested(mutant: Mutant, folder: Path) -> Result:
    # The working copy is installed by its path, which comes after PYTHONPATH.
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", *mutant.tests]
    try:
        run = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return Result(mutant, "killed")
    if run.returncode == FAILED:
        return Result(mutant, "killed")
    verdict = "survived" if run.returncode == 0 else "not tested"
    return Result(mutant, verdict, run.stdout[-2000:] + run.stderr[-2000:])


def _print(results: Sequence[Result]) -> None:
    claim = ("", "")
    for result in results:
        mutant = result.mutant
        if (mutant.adr, mutant.claim) != claim:
            claim = (mutant.adr, mutant.claim)
            sys.stdout.write(f"\nADR {mutant.adr}: {mutant.claim}\n  held by {', '.join(mutant.tests)}\n")
        sys.stdout.write(f"  {result.verdict:10} {mutant}\n")


def _line(text: str) -> str:
    """A text in one line, short enough for a table."""
    line = " ".join(text.split())
    return line if len(line) <= 90 else f"{line[:89]}…"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
