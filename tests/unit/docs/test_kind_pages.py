"""The pages about kinds leave no field unexplained."""

import re

import pytest
from tests.unit.docs.pages import DOCS, ROOT, headings
from tools import generate_reference
from tools.reference_kinds import EXAMPLES, example, page_name
from tools.reference_schema import fields, type_of

from trainmaster import frameworks
from trainmaster.api import schema

each_framework = pytest.mark.parametrize("framework", frameworks.BUILT_IN, ids=lambda framework: framework.name)


def page(framework):
    return (DOCS / "kinds" / page_name(framework)).read_text()


@each_framework
def test_every_field_of_a_kind_is_told_with_its_meaning(framework):
    rows = re.findall(r"^\| `((?:spec|status)\.[^`]+)` \|.*\| *([^|]*?) *\|$", page(framework), re.MULTILINE)

    assert rows
    assert [path for path, meaning in rows if not meaning] == []


@each_framework
def test_every_field_that_only_a_kind_has_is_on_its_page(framework):
    text = page(framework)

    assert [name for name in framework.fields if f"`spec.{name}`" not in text] == []
    assert [name for name in framework.status_fields if f"`status.{name}`" not in text] == []


@each_framework
def test_every_page_has_roles_an_example_and_api_versions(framework):
    found = headings(page(framework))

    assert {"## Roles", "## Example", "## What its pods get", "## Fields of spec", "## API versions"} <= {*found}


@each_framework
def test_every_variable_that_a_pod_gets_is_on_its_page(framework):
    text = page(framework)

    for path in EXAMPLES[framework.name]:
        shown = example(framework, path)
        for member in shown.observed.job.members():
            names = shown.observed.framework.env(member)
            assert [name for name in names if f"`{name}`" not in text] == []


def test_pages_have_names_of_their_own():
    names = [page_name(framework) for framework in frameworks.BUILT_IN]

    assert len({*names}) == len(names)
    assert {f"kinds/{name}" for name in names} < dict(generate_reference.files(frameworks.BUILT_IN)).keys()


def test_what_is_derived_does_not_depend_on_when_or_where(monkeypatch, tmp_path):
    before = dict(generate_reference.files(frameworks.BUILT_IN))
    monkeypatch.chdir(tmp_path)

    assert dict(generate_reference.files(frameworks.BUILT_IN)) == before
    assert str(ROOT) not in "".join(before.values())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (schema.STRING, "string"),
        (schema.integer(1, 65535), "integer, 1 to 65535"),
        (schema.integer(), "integer, at least 0"),
        (schema.array(schema.STRING), "list of string"),
        (schema.mapping(schema.INT_OR_STRING), "map of integer or string"),
        (schema.POD_TEMPLATE, "pod template"),
        (schema.TIME, "time"),
        ({"type": "string", "enum": ["a", "b"]}, "`a` or `b`"),
    ],
    ids=["text", "range", "open range", "list", "map", "template", "time", "choice"],
)
def test_types_are_told_in_words(given, told):
    assert type_of(given) == told


def test_fields_below_lists_and_maps_are_told_too():
    inner = schema.record({"x": schema.told(schema.STRING, "It.")}, required=["x"])
    outer = schema.record({"many": schema.array(inner), "named": schema.mapping(inner)})

    rows = {row.path: (row.default, row.meaning) for row in fields("spec", outer)}

    assert rows["spec.many[].x"] == ("required", "It.")
    assert rows["spec.named.NAME.x"] == ("required", "It.")
