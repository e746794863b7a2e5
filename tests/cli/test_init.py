"""`toolkeep init` on a terminal accepts exactly what it wrote; elsewhere a person does so later."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.cli.terminal import on_a_terminal
from tests.config.projects import project_file
from toolkeep.cli.main import cli
from toolkeep.cli.options import write_new

pytestmark = pytest.mark.spec("REG-5")


def test_on_a_terminal_what_it_wrote_is_accepted(tmp_path: Path) -> None:
    shown = on_a_terminal(["init", "--project", str(tmp_path)])
    assert "They are accepted as written" in shown
    assert project_file(tmp_path).counts


def test_a_policy_that_is_changed_afterwards_is_not(tmp_path: Path) -> None:
    on_a_terminal(["init", "--project", str(tmp_path)])
    policies = tmp_path / ".agent" / "policies" / "main.cedar"
    policies.write_text(policies.read_text() + '@id("all")\npermit (principal, action, resource);\n')
    assert not project_file(tmp_path).counts


def test_what_lies_in_the_project_by_then_is_not_accepted_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who swaps a file between the writing and the accepting gains nothing."""
    from toolkeep.cli import init

    written = write_new

    def swap(path: Path, text: str) -> None:
        written(path, text)
        if path == tmp_path / init.EXAMPLES_FILE:
            (tmp_path / init.POLICY_FILE).write_text('@id("all")\npermit (principal, action, resource);\n')

    monkeypatch.setattr(init, "write_new", swap)
    monkeypatch.setattr(init, "is_terminal", lambda _: True)
    result = CliRunner().invoke(cli, ["init", "--project", str(tmp_path)])
    assert "until then no call is permitted" in result.output
    assert not project_file(tmp_path).counts


def test_where_one_of_its_files_exists_nothing_is_accepted(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    (tmp_path / ".agent" / "config.yml").write_text("permissions: [mail]\n")
    assert "exists already" in on_a_terminal(["init", "--project", str(tmp_path)])
    assert not project_file(tmp_path).counts


@pytest.mark.parametrize("link", [".agent", ".agent/policies"])
def test_nothing_is_written_through_a_link_that_leads_out_of_the_project(tmp_path: Path, link: str) -> None:
    """A clone may hold one."""
    outside, project = tmp_path / "outside", tmp_path / "project"
    outside.mkdir()
    (project / link).parent.mkdir(parents=True)
    (project / link).symlink_to(outside)
    result = CliRunner().invoke(cli, ["init", "--project", str(project)])
    assert (result.exit_code, "is reached through a symlink out of" in result.output) == (1, True)
    assert list(outside.iterdir()) == []


def test_without_a_terminal_nothing_is_accepted(tmp_path: Path) -> None:
    assert CliRunner().invoke(cli, ["init", "--project", str(tmp_path)]).exit_code == 0
    assert not project_file(tmp_path).counts
