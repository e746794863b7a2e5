"""The table of threats names tests that there are, and the promises about them lead to it."""

import re

from tests.docs.markdown import ROOT, links_of

PAGE = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\\\)\|", line)[1:-1]]
    for line in PAGE.partition("| threat | protection | shown by |")[2].partition("\n\n")[0].splitlines()[2:]
]


def test_there_is_one_table_of_threats_and_it_is_here() -> None:
    assert len(ROWS) > 100
    texts = [path.read_text(encoding="utf-8") for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]]
    assert sum(text.count("| threat | protection |") for text in texts) == 1
    assert "docs/threats.md" in links_of((ROOT / "SECURITY.md").read_text(encoding="utf-8"))


def test_every_threat_has_a_protection_and_a_test_that_exists() -> None:
    place = re.compile(r"`(tests|bench|src/toolkeep/escape_suite)/[\w/.]+`")
    for threat, protection, shown_by in ROWS:
        assert threat
        assert protection, threat
        paths = shown_by.split(", ")
        assert [path for path in paths if not place.fullmatch(path)] == [], threat
        assert [path for path in paths if not (ROOT / path.strip("`")).exists()] == [], threat


def test_no_threat_stands_twice() -> None:
    assert len({row[0] for row in ROWS}) == len(ROWS)
