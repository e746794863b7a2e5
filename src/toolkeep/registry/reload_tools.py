"""Exchanges tools for those of a newer version of their file (REG-5).

A tool whose definition stayed equal or became stricter runs the new code from the next call on. One that is
looser keeps its code and definition, and a new one is not registered, until a person has agreed. One that is
gone is removed. Calls that run have the tool that they began with.
"""

from collections.abc import Iterable

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.compat.definition_diff import Change
from toolkeep.compat.strictness import looser_changes
from toolkeep.definitions.version_order import fold
from toolkeep.errors import DefinitionError, DuplicateTool, ToolkeepError
from toolkeep.registry.coerce import Offer, located, name_of
from toolkeep.registry.register import Registrar, Skipped
from toolkeep.registry.registry import ToolRegistry


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that waits for a person, and why."""

    tool: RegisteredTool
    is_new: bool
    changes: tuple[Change, ...] = ()
    """What is not known to be stricter."""
    objection: str = ""
    """What concerns the whole file."""


class Reloaded(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the tools of a file after a change."""

    taken: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    """Those that cannot be registered; a tool that was registered before stays as it was."""


def reload_tools(
    registry: ToolRegistry,
    registrar: Registrar,
    offers: Iterable[Offer],
    *,
    provider: str,
    names: Iterable[str],
    objection: str = "",
    is_agreed: bool = False,
) -> Reloaded:
    """Exchange the tools of `names`, which `provider` registered, for the offers; see the module.

    `is_agreed`: a person has agreed to this version of the file, so nothing of it waits.
    """
    families = registry.snapshot.families
    held = {key: families[key][0] for key in map(fold, names) if key in families}
    offered, skipped = _admitted(registry, registrar, offers, provider)
    taken: list[RegisteredTool] = []
    waiting: list[Waiting] = []
    for key, tool in offered.items():
        before = held.get(key)
        changes = looser_changes(before.definition, tool.definition) if before is not None else ()
        if not is_agreed and (before is None or changes or objection):
            one = Waiting(tool=tool, is_new=before is None, changes=changes, objection=objection)
            waiting.append(one)
        else:
            taken.append(tool)
    # The name of a broken tool is not known: each of those that are gone may be it.
    is_known = not skipped and not objection
    removed = [held[key].name for key in held.keys() - offered.keys()] if is_known else []
    registry.exchange([*(tool.name for tool in taken), *removed], taken, provider=provider)
    return Reloaded(
        taken=tuple(tool.name for tool in taken),
        removed=tuple(sorted(removed)),
        waiting=tuple(waiting),
        skipped=tuple(skipped),
    )


def _admitted(
    registry: ToolRegistry, registrar: Registrar, offers: Iterable[Offer], provider: str
) -> tuple[dict[str, RegisteredTool], list[Skipped]]:
    """The offered tools by folded name, and those that cannot be registered."""
    found: dict[str, RegisteredTool] = {}
    skipped: list[Skipped] = []
    for offer in offers:
        try:
            tool = registrar.admit(offer, provider=provider)
            if other := found.get(fold(tool.name)):
                raise DuplicateTool(tool.name, held_by=f"{other.name} {other.version} of the same file")
            registry.exchange([tool.name], [tool], provider=provider, is_trial=True)
        except DefinitionError as error:
            skipped.append(registrar.skip(provider, name_of(offer), located(offer, error)))
        except ToolkeepError as error:
            skipped.append(registrar.skip(provider, name_of(offer), error))
        else:
            found[fold(tool.name)] = tool
    return found, skipped
