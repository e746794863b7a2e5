"""A provider of another package, installed for the command: one tool of each danger that is asked about."""

import os
from collections.abc import Callable
from pathlib import Path

MODULE = '''
from typing import Annotated
from toolkeep import Touches, tool

@tool(danger="medium", side_effects=["FsWrite"], capabilities=["fs.write:*"])
def save_note(path: Annotated[str, Touches("fs.write")], content: str) -> str:
    """Save a note.

    Args:
        path: Where.
        content: What it says.
    """
    with open(path, "w") as file:
        file.write(content)
    return "saved"

@tool(danger="critical", side_effects=["None"])
def wipe(name: str) -> str:
    """Wipe a disk.

    Args:
        name: Which.
    """
    return f"wiped {name}"

class Shop:
    name = "shop"
    priority = 50

    def get_tool_definitions(self):
        return [save_note, wipe]
'''
CONFIG = """\
tool_registry:
  providers: [shop]
agents:
  operator:
    capabilities: ["fs.write:."]
"""


class Shop:
    """A project whose user has the provider."""

    def __init__(self, folder: Path, setenv: Callable[[str, str], None]) -> None:
        self.project = folder / "project"
        self.state = folder / "state"
        site = folder / "site"
        info = site / "toolkeep_shop-1.0.dist-info"
        for made in (self.project, info, Path.home() / ".agent"):
            made.mkdir(parents=True)
        (site / "toolkeep_shop.py").write_text(MODULE)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toolkeep-shop\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[toolkeep.providers]\nshop = toolkeep_shop:Shop\n")
        self.configure()
        setenv("TOOLKEEP_HOME", str(self.state))
        setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")])))

    def configure(self, more: str = "") -> None:
        """The user's own configuration."""
        (Path.home() / ".agent" / "config.yml").write_text(CONFIG + more)
