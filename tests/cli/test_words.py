"""The words of the command, as the specification lists them."""

from collections.abc import Iterator

import click
import pytest

from toolkeep.cli.main import cli

WORDS = (
    "list", "show", "validate", "call", "serve", "mcp", "add", "lock", "accept", "install", "enable", "disable",
    "policy", "approve", "deny", "audit", "doctor", "init", "new", "lint", "token", "backup",
)  # fmt: skip


def leaves(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from leaves(found, (*path, name))


COMMANDS = dict(leaves(cli, ()))


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize("word", WORDS)
def test_every_word_of_the_specification_is_a_command(word: str) -> None:
    assert any(path.split()[0] == word for path in COMMANDS)


@pytest.mark.spec("CLI-1")
@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_can_answer_in_json_and_be_asked_for_its_log(path: str) -> None:
    options = {option for parameter in COMMANDS[path].params for option in parameter.opts}
    assert {"--json", "--log-level"} <= options
