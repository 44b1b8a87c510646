"""Ctrl-C before a verb is at work."""

import sys
import types

import pytest

from trainmaster import cli


class Interrupted(types.ModuleType):
    """A module that is being imported when the user presses Ctrl-C."""

    def __getattr__(self, name):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("trainmaster.cli.app", ["run", "job.yaml"]),
        ("trainmaster.cli.run", ["run", "job.yaml"]),
        ("trainmaster.cli.up", ["up"]),
    ],
    ids=["while verbs are read", "while run is read", "while up is read"],
)
def test_an_early_interruption_says_that_nothing_was_started(module, words, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, Interrupted(module))
    monkeypatch.setattr(sys, "argv", ["trainmaster", *words])

    with pytest.raises(SystemExit) as end:
        cli.main()

    assert end.value.code == 130
    assert capsys.readouterr().err == "interrupted: nothing was started\n"


def test_a_verb_that_tells_of_its_interruption_is_not_corrected(monkeypatch, capsys, tmp_path):
    def interrupted(*_):
        raise KeyboardInterrupt

    (tmp_path / "job.yaml").write_text("a")
    monkeypatch.setattr("trainmaster.cli.documents.read", interrupted)
    monkeypatch.setattr(sys, "argv", ["trainmaster", "run", str(tmp_path / "job.yaml")])

    with pytest.raises(SystemExit) as end:
        cli.main()

    assert end.value.code == 130
    assert capsys.readouterr().err == "interrupted: everything that was started has been stopped\n"
