"""What `toolkeep enable` and `toolkeep disable` share."""

from collections.abc import Sequence
from pathlib import Path

from toolkeep.cli.options import print_json, say_done
from toolkeep.cli.tools import keep_with
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.registry.versions import split_version


def switch(names: Sequence[str], project: Path | None, *, enabled: bool, as_json: bool) -> None:
    """Switch tools on or off, for every start from now on; all of them, or none."""
    keep = keep_with(project=project)
    change = keep.enable if enabled else keep.disable
    for name in names:
        change(name)  # all of them can be switched, or none is
    for name in names:
        change(name, remember=True)
    found = [keep.get(name) for name in names]
    if as_json:
        print_json(
            [{"tool": tool.name, "version": tool.version, "state": tool.state.value} for tool in found]
        )
        return
    for name, tool in zip(names, found, strict=True):
        held = [tool] if split_version(name)[1] else keep.versions(tool.name)
        for one in held:
            why = f": {one.why}" if one.state is ToolState.QUARANTINED else ""
            say_done(f"{one.name} {one.version} is {one.state.value}{why}")
