"""What the READMEs show of a terminal is what a terminal shows."""

import io
import re

import pytest
from rich.console import Console
from tests.unit.docs.pages import READMES, ROOT, blocks, title
from tests.unit.docs.sources import share_of
from tools import demo

from trainmaster.api.settings import Settings
from trainmaster.cli.documents import BadDocument, Document
from trainmaster.cli.follow import Progress
from trainmaster.cli.screen import ranks_table
from trainmaster.cli.submit import checked

OF_XGBOOST = r"\[[\d:]+\] Task \d{4} got rank \d"
"""What XGBoost itself prints when its ranks have met."""

CONTAINER = {"name": "pytorch", "image": "mnist:1"}
BAD = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "mnist"},
    "spec": {
        "cleanPolicy": "All",
        "pytorchReplicaSpecs": {
            "Master": {"replicas": 2, "template": {"spec": {"containers": [CONTAINER]}}},
            "Worker": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}},
        },
    },
}


def session(page):
    return next(block for block in blocks(page.read_text(), "") if block.startswith("$ make demo"))


def header():
    printed = io.StringIO()
    Console(file=printed, width=100).print(ranks_table(Progress()))
    return printed.getvalue().split()


@pytest.mark.parametrize("page", READMES, ids=title)
def test_the_session_has_everything_that_the_demo_prints(page):
    shown = session(page)

    assert shown.endswith(demo.NEXT.format(example=demo.XGBOOST.example))
    assert [line.split() for line in shown.splitlines() if line.startswith("JOB")] == [header()]
    assert re.search(r"^XGBoostJob xgboost: Succeeded after \d+\.\d s$", shown, re.MULTILINE)
    assert len(re.findall(r"^xgboost  (?:master|worker)-\d  Succeeded", shown, re.MULTILINE)) == len(
        re.findall(r"final loss", shown)
    )


@pytest.mark.parametrize("page", READMES, ids=title)
def test_the_ranks_of_the_session_have_one_model(page):
    checksums = re.findall(r"trees (\w+)$", session(page), re.MULTILINE)

    assert len(checksums) == 3
    assert len({*checksums}) == 1


@pytest.mark.parametrize("page", READMES, ids=title)
def test_the_sizes_that_are_promised_are_those_that_make_prints(page):
    printed = [*re.findall(r"downloading .*, (\d+ MB) …", (ROOT / "Makefile").read_text()), demo.PYTORCH.download]
    promised = page.read_text().partition("```sh")[0]

    assert len(printed) == 3
    assert [size for size in printed if size not in promised] == []
    assert demo.XGBOOST.download in session(page)


@pytest.mark.parametrize("line", [line for line in session(READMES[0]).splitlines() if "XGBoostJob xgboost" in line])
def test_what_run_says_in_the_session_is_made_of_words_that_the_code_has(line):
    assert share_of(line) >= 0.4


def test_what_the_ranks_say_in_the_session_is_what_the_example_prints():
    program = (ROOT / demo.XGBOOST.example / "train.py").read_text()
    printed = [re.sub(r"\{[^}]*\}", "VALUE", text) for text in re.findall(r'print\(f"(.+?)"', program)]
    said = [line.partition("] ")[2] for line in session(READMES[0]).splitlines() if line.startswith("[")]

    forms = [OF_XGBOOST, *(re.sub("VALUE", r"-?[\\da-f.]+", re.escape(text)) for text in printed)]

    assert said
    assert [line for line in said if not any(re.fullmatch(form, line) for form in forms)] == []


@pytest.mark.parametrize("page", READMES, ids=title)
def test_the_mistakes_that_are_shown_are_told_like_that(page):
    with pytest.raises(BadDocument) as caught:
        checked([Document("job.yaml", BAD)], Settings())

    assert f"{caught.value}\n" in blocks(page.read_text(), "")
