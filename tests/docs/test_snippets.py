"""What the pages show is what happens."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.markdown import PAGES, ROOT
from tests.docs.snippets import run_page


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pages make files; commands set up the log, which is put back."""
    monkeypatch.chdir(tmp_path)
    log = logging.getLogger("toolkeep")
    handlers, level = list(log.handlers), log.level
    yield
    log.handlers = handlers
    log.setLevel(level)


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_snippets_of_a_page_run_and_print_what_it_shows(path: Path) -> None:
    for shown in run_page(path.read_text(encoding="utf-8"), str(path)):
        if not shown.is_true:
            assert shown.block.text == shown.actual, f"{path.name}, block at line {shown.block.line}"


def test_wrong_output_is_noticed() -> None:
    page = "```python\nprint(1)\n```\n\nIt prints:\n\n```text\n2\n```\n"
    assert [(shown.actual, shown.is_true) for shown in run_page(page)] == [("1\n", False)]


def test_blocks_of_one_page_share_their_names() -> None:
    page = "```python\nn = 1\n```\n\n```python\nprint(n)\n```\n\nIt prints:\n\n```text\n1\n```\n"
    assert [shown.is_true for shown in run_page(page)] == [True]


def test_an_exception_in_a_snippet_comes_out_with_its_line() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        list(run_page("one\n\n```python\n1 / 0\n```\n", "page.md"))
    assert (raised.traceback[-1].path, raised.traceback[-1].lineno) == ("page.md", 3)


def test_a_command_reads_the_file_of_an_earlier_block_and_its_output_is_compared() -> None:
    page = (
        '```json call.json\n{"name": "Ada"}\n```\n\n'
        "```console\n$ toolkeep validate agent_hello_world < call.json\nwrong\n$ echo $?\n0\n```\n"
    )
    [shown] = run_page(page)
    assert not shown.is_true
    assert shown.actual == (
        "$ toolkeep validate agent_hello_world < call.json\n"
        "✓ Validation passed for tool 'agent_hello_world'\n\n"
        'Parsed arguments:\n{\n  "name": "Ada"\n}\n'
        "$ echo $?\n0\n"
    )


def test_a_file_may_lie_in_a_folder_or_at_home_and_folders_are_shown_as_a_readers() -> None:
    page = (
        "```yaml\n# .agent/config.yml\ntier: 7\n```\n\n```console\n$ toolkeep list\n```\n\n"
        "```yaml ~/.agent/config.yml\ntier: 7\n```\n\n```console\n$ toolkeep list\n```\n"
    )
    first, second = [shown.actual.splitlines()[1] for shown in run_page(page)]
    assert "/home/ada/books/.agent/config.yml:2:1:" in first
    assert "/home/ada/.agent/config.yml:1:1:" in second


def test_a_command_may_set_variables() -> None:
    [shown] = run_page("```console\n$ TOOLKEEP_HOME=state toolkeep list\n```\n")
    assert "/home/ada/books/state" in shown.actual


def test_other_commands_are_left_alone() -> None:
    page = "```console\n$ pip install .\n…\n$ toolkeep --version\n```\n"
    [shown] = run_page(page)
    assert shown.actual.startswith("$ pip install .\n…\n$ toolkeep --version\ntoolkeep ")


def test_the_output_of_a_command_may_go_to_a_file_or_into_a_variable() -> None:
    page = (
        "```console\n$ TOOL=$(toolkeep show agent_hello_world --json | jq -r .name)\n"
        "$ toolkeep show $TOOL --json > tool.json\n$ VERSION=$(toolkeep --version)\n```\n\n"
        "```python\nimport json, pathlib\n"
        "print(json.loads(pathlib.Path('tool.json').read_text())['name'])\n```\n\n"
        "It prints:\n\n```text\nagent_hello_world\n```\n"
    )
    assert [shown.is_true for shown in run_page(page)] == [True, True]


def test_the_first_of_a_list_may_go_into_a_variable() -> None:
    page = "```console\n$ TOOL=$(toolkeep list --json | jq -r .[0].name)\n$ toolkeep show $TOOL --json > tool.json\n```\n"
    assert [shown.is_true for shown in run_page(page)] == [True]


def test_a_policy_may_be_a_file() -> None:
    page = "```cedar rules.cedar\nforbid;\n```\n\n```console\n$ toolkeep policy check rules.cedar\n```\n"
    [shown] = run_page(page)
    assert "rules.cedar:1:7:" in shown.actual


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("  3 s ago     2 min left", " 12 s ago  1 min 48 s left", True),
        ("2026-01-02 03:04:05 UTC, in 7 d", "2027-05-06 07:08:09 UTC, in 6 d 23 h", True),
        ("in 7 d", "in 6 d", False),
    ],
)
def test_times_for_people_may_differ(one: str, other: str, is_same: bool) -> None:
    page = f"```python\nprint({one!r})\n```\n\nIt prints:\n\n```text\n{other}\n```\n"
    assert [shown.is_true for shown in run_page(page)] == [is_same]


def test_ids_times_and_keys_may_differ_and_nothing_else() -> None:
    page = "```python\nprint({!r})\n```\n\nIt prints:\n\n```text\n{}\n```\n"
    once = f'{"a" * 32} 2026-01-02T03:04:05.678+00:00 toolkeep/{"b" * 16}+{"c" * 8}+{"D" * 44} "hash": "{"e" * 64}"'
    again = f'{"1" * 32} 2025-09-08T07:06:05.432+00:00 toolkeep/{"2" * 16}+{"3" * 8}+{"4" * 44} "hash": "{"5" * 64}"'
    assert [shown.is_true for shown in run_page(page.format(once, again))] == [True]
    for one, other in ((once, once + "."), ("f" * 64, "0" * 64), ("1", "2")):
        assert [shown.is_true for shown in run_page(page.format(one, other))] == [False]
