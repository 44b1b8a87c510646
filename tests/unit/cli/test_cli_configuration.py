"""Which trainmaster.yaml is read, and what is said of one that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.cli.documents import BadDocument
from trainmaster.cli.embedded import EmbeddedOptions, configuration_of


@pytest.mark.parametrize(
    ("content", "told"),
    [
        pytest.param("images: foo", "images: is 'foo'; write a list", id="images"),
        pytest.param("node: 4", "node: is 4; write resources, labels or processes", id="node"),
        pytest.param("nodes: {}", "nodes: there is no such field; known are images, node, volumes", id="section"),
        pytest.param("[", "not valid YAML: line ", id="syntax"),
        pytest.param("images: 2021-13-45", "images: is '2021-13-45'; write a list", id="date"),
        pytest.param("images: &a [*a]", "not valid YAML: line 1, column 13: anchor 'a': the document", id="in itself"),
        pytest.param(b"\xff\xfe\x00", "cannot be read: it is not text", id="binary"),
    ],
)
def test_a_mistake_names_the_file_that_was_given(tmp_path, content, told):
    file = tmp_path / "mine.yaml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())

    with pytest.raises(BadDocument) as caught:
        configuration_of(EmbeddedOptions(config=str(file)), Path())

    assert str(caught.value).startswith(f"{file}: {told}")


@pytest.mark.parametrize("is_named", [True, False], ids=["named", "beside the manifest"])
def test_a_directory_in_its_place_is_refused(tmp_path, is_named):
    place = tmp_path / "trainmaster.yaml"
    place.mkdir()

    with pytest.raises(BadDocument) as caught:
        configuration_of(EmbeddedOptions(config=str(place) if is_named else ""), tmp_path)

    assert str(caught.value) == f"{place}: cannot be read: Is a directory"


def test_a_name_that_leads_nowhere_is_refused(tmp_path):
    with pytest.raises(BadDocument, match=f"{tmp_path}/none.yaml: no such file"):
        configuration_of(EmbeddedOptions(config=f"{tmp_path}/none.yaml"), Path())


def test_paths_in_it_start_where_it_lies_whatever_its_name(tmp_path, monkeypatch):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.yaml").write_text("volumes: {/data: ./data}")
    monkeypatch.chdir(tmp_path)

    _, machine = configuration_of(EmbeddedOptions(config="there/mine.yaml"), Path())

    assert machine.volumes == {"/data": tmp_path / "there" / "data"}
