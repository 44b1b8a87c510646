"""What is derived is current, and `--check` says so when it is not."""

import pytest
from tools import generate
from tools.generate_kustomize import overlays
from tools.generate_values import Value, values, values_yaml

from trainmaster import frameworks


@pytest.fixture
def deploy(tmp_path, monkeypatch):
    """A place of its own for what is derived."""
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "DEPLOY", tmp_path / "deploy")
    return tmp_path / "deploy"


def test_what_is_committed_is_current():
    assert generate.main(["--check"]) == 0


def test_what_was_written_is_current(deploy):
    generate.main([])

    assert generate.main(["--check"]) == 0


def test_a_file_that_was_edited_or_is_missing_is_told_and_mended(deploy, capsys):
    generate.main([])
    edited, missing = deploy / "trainmaster.yaml", deploy / "helm" / "trainmaster" / "Chart.yaml"
    edited.write_text("edited")
    missing.unlink()

    code = generate.main(["--check"])
    told = capsys.readouterr().err
    generate.main([])

    assert code == 1
    assert "deploy/trainmaster.yaml is out of date" in told
    assert "deploy/helm/trainmaster/Chart.yaml is out of date" in told
    assert generate.main(["--check"]) == 0


def test_a_file_that_nothing_derives_any_more_is_told_and_removed(deploy, capsys):
    generate.main([])
    left_over = deploy / "kustomize" / "overlays" / "gone" / "kustomization.yaml"
    left_over.parent.mkdir()
    left_over.write_text("resources: []")

    code = generate.main(["--check"])
    generate.main([])

    assert code == 1
    assert "overlays/gone/kustomization.yaml is out of date" in capsys.readouterr().err
    assert not left_over.exists()


def test_the_promised_overlays_exist():
    assert set(overlays(frameworks.BUILT_IN)) == {"standalone", "single-namespace", "volcano", "kubeflow", "webhooks"}


def test_every_value_says_what_it_means():
    table = values(frameworks.BUILT_IN)

    assert all(value.about.endswith(".") for value in table)
    assert len({value.path for value in table}) == len(table)


def test_values_of_one_group_stand_together_under_what_they_mean():
    table = (Value("a.b", 1, {}, "First."), Value("a.c", [], {}, "Second."), Value("d", "", {}, "Third."))

    text = values_yaml(table)

    assert text.endswith("\na:\n  # First.\n  b: 1\n  # Second.\n  c: []\n\n# Third.\nd: ''\n")
