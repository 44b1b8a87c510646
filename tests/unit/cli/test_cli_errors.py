"""Task groups wrap what went wrong; users are told the thing itself."""

import pytest

from trainmaster.cli.errors import first_cause, unwrapped


def test_the_first_cause_is_found_however_deep_it_is_wrapped():
    cause = ValueError("the thing itself")

    found = first_cause(ExceptionGroup("outer", [ExceptionGroup("inner", [cause]), OSError("a consequence")]))

    assert found is cause


def test_a_group_is_raised_as_its_first_cause():
    with pytest.raises(ValueError, match="the thing itself"), unwrapped():
        raise ExceptionGroup("outer", [ValueError("the thing itself")])
