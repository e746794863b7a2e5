"""Tells whoever sets something up for an agent that nobody declared."""

from pathlib import Path

from toolkeep.cli.options import warn


def say_if_undeclared(agent: str, root: Path) -> None:
    """A line on stderr where calls of the agent would be refused."""
    from toolkeep.assembly import open_state, read_configuration
    from toolkeep.keep import KNOWN_AGENTS

    if agent not in KNOWN_AGENTS and agent not in read_configuration(root, open_state(root)).agents:
        text = (
            f"no agent {agent!r} is declared: its calls are refused until a configuration that counts has it"
        )
        warn(f"{text} under `agents`")
