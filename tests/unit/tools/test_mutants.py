"""The tables of mutants are true to the source, and what survives is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tools import mutants

TABLE = list(mutants.mutants())
MUTANT = mutants.Mutant(
    "0003", "a claim", ("tests/unit/objects/test_names.py",), "objects/names.py", "MAX_LABEL = 63", ""
)


@pytest.mark.parametrize("mutant", TABLE, ids=str)
def test_the_text_that_is_to_be_changed_is_there_once_and_the_result_is_python(mutant):
    source = (mutants.ROOT / mutants.PACKAGE / mutant.file).read_text()

    compile(mutants.mutated(mutant, source), mutant.file, "exec")


def test_the_tests_and_decision_records_that_are_named_exist():
    tests = {test.partition("::")[0] for mutant in TABLE for test in mutant.tests}
    records = {mutant.adr for mutant in TABLE}

    assert [test for test in tests if not (mutants.ROOT / test).is_file()] == []
    assert [adr for adr in records if not list((mutants.ROOT / "docs" / "adr").glob(f"{adr}-*.md"))] == []


@pytest.mark.parametrize(("text", "times"), [("no such text", 0), ("trainmaster", 2)])
def test_a_text_that_is_not_there_or_not_alone_is_no_mutant(text, times):
    with pytest.raises(ValueError, match=f"found {times} times"):
        mutants.mutated(replace(MUTANT, old=text), "import trainmaster\nfrom trainmaster import api\n")


@pytest.mark.parametrize(
    ("new", "code", "words"),
    [
        pytest.param("MAX_LABEL = 62", 0, "1 of 1 mutants killed", id="killed"),
        pytest.param("MAX_LABEL = 62 + 1", 1, "0 of 1 mutants killed", id="survived"),
    ],
)
def test_a_mutant_that_no_test_notices_is_a_failure(monkeypatch, capsys, new, code, words):
    monkeypatch.setattr(mutants, "mutants", lambda: iter([replace(MUTANT, new=new)]))

    assert mutants.main([]) == code
    assert words in capsys.readouterr().out
