"""Links lead somewhere, within pages too; both languages say the same."""

import re
from collections import Counter

import pytest
from tests.unit.docs.pages import DOCS, PAGES, READMES, ROOT, anchors, blocks, calls, headings, lines, title

LINKS = [
    (page, target)
    for page in PAGES
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    if not target.startswith(("http", "mailto"))
]
PAIRS = (
    READMES,
    (DOCS / "guide" / "ml-engineer.md", DOCS / "guide" / "ml-engineer.zh-CN.md"),
)


@pytest.mark.parametrize(("page", "target"), LINKS, ids=[f"{title(page)}-{target}" for page, target in LINKS])
def test_a_link_leads_somewhere(page, target):
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page

    assert there.exists()
    assert there.is_relative_to(ROOT)
    assert not anchor or anchor in anchors(there.read_text())


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=title)
def test_every_page_can_be_reached_from_the_index(page):
    reached, waiting = set(), [DOCS / "README.md"]
    while waiting:
        here = waiting.pop()
        if here in reached or here.suffix != ".md":
            continue
        reached.add(here)
        targets = re.findall(r"\]\(([^)#\s]+)", here.read_text())
        found = [(here.parent / target).resolve() for target in targets if not target.startswith("http")]
        waiting += [one for path in found for one in (sorted(path.glob("*.md")) if path.is_dir() else [path])]

    assert page in reached


@pytest.mark.parametrize(("english", "chinese"), PAIRS, ids=[title(pair[1]) for pair in PAIRS])
def test_both_languages_have_the_same_headings_commands_and_links(english, chinese):
    ours, theirs = english.read_text(), chinese.read_text()

    def shape(text):
        return [heading.split()[0] for heading in headings(text)]

    def targets(text):
        found = re.findall(r"\]\(([^)]+)\)", text)
        return {
            re.sub(r"^#.*", "#", target.replace(".zh-CN", "")) for target in found if target not in (*own, "README.md")
        }

    def spans(text):
        return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))

    own = {"README.zh-CN.md", "README.md", "docs/README.md"}

    assert shape(ours) == shape(theirs)
    assert lines(ours) == lines(theirs)
    assert calls(ours) == calls(theirs)
    assert blocks(ours, "") == blocks(theirs, "")
    assert Counter(spans(ours)) == Counter(spans(theirs))
    assert targets(ours) == targets(theirs)
