"""The quick way to YAML gives what PyYAML gives, and what every reader of YAML reads back."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.engine.test_engine_size import JOBS

from trainmaster.cli import yamltext
from trainmaster.cli.plan import rendered
from trainmaster.engine.blueprint import blueprint

texts = st.one_of(st.text(max_size=30), st.text(alphabet="ab:- \n#'\"|[{,.0~%@&*!>\t", max_size=12))
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)


@given(values)
def test_whatever_is_written_is_read_back(value):
    assert yaml.safe_load(yamltext.item_of(value)) == [value]


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_objects_of_jobs_look_as_pyyaml_would_have_them(job):
    for action in blueprint(job(2).observed()):
        body = action.body

        assert yamltext.item_of(body) == rendered([body], "yaml") + "\n"


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "yes", "No", "TRUE", "null", "~", "on", "=", "<<"),
        *("0", "007", "1.5", "1e3", "0x1f", "12:30", "2026-01-01"),
        *("a:", "a: b", ":", "-", "- a", "#x", "a #b", "a#b", "'", '"'),
        *("%", "@x", "`", "*a", "&a", "!a", "{", "[]", "{a b}"),
        *("x\n", "x\ny", "x\n\n", "\nx", " x\ny", "x \ny", "x\ny "),
        *("\t", "a\tb\nc", "é", "a\u2028b", "a\x85b", "\ufeff", "\x7f"),
    ],
)  # fmt: skip
def test_texts_that_look_like_something_else_stay_texts(text):
    for value in (text, {text: text}, [[text]], {"a": [{"b": text}]}):
        assert yaml.safe_load(yamltext.item_of(value)) == [value]


def test_a_long_text_stays_on_its_line():
    addresses = ",".join(f"job-worker-{n}.default.svc:2222" for n in range(5000))

    assert yamltext.item_of({"value": addresses}) == f"- value: {addresses}\n"
