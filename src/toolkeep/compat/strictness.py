"""Which changes of a definition are not known to be stricter (REG-5), and which need fewer approvals (WEB-2).

Stricter: the tool accepts and does less, or more calls of it need approval. Conservative: a change of words,
side effects, names or version is none of these, so it counts as looser and waits for a person.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from toolkeep.compat.change_effects import Effect
from toolkeep.compat.definition_diff import Change, Weight, field_changes, schema_changes
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.json_values.canonical import canonical_bytes

_SCHEMAS: Final = ("parameters", "output_schema")
_CORES: Final = 1.0
"""Processor cores of a tool that states none."""
_ANY_SCOPE: Final = ("", "*")


def looser_changes(old: ToolDefinition, new: ToolDefinition) -> tuple[Change, ...]:
    """Every difference that is not known to be stricter; empty if `new` is equal or stricter."""
    return (*_of_fields(old, new), *_of_approval(old, new))


def _of_fields(old: ToolDefinition, new: ToolDefinition) -> Iterator[Change]:
    before, after = old.to_dict(), new.to_dict()
    for field in {**before, **after}:
        was, now = before.get(field), after.get(field)
        if canonical_bytes(was) == canonical_bytes(now):
            continue
        if field in _SCHEMAS and was is not None and now is not None:
            yield from _of_schema(field, was, now)
        elif field not in _STRICTER or not _STRICTER[field](old, new):
            yield from list(field_changes(field, was, now)) or [_changed(field, was, now)]


def _of_schema(field: str, was: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
    found = schema_changes(was, now, field, closes=field == "parameters")
    if not found:
        yield _changed(field, was, now)
    for change in found:
        if change.effect is not Effect.NARROWED:
            yield Change(change.place, change.what, Weight.MAJOR, change.before, change.after)


def _changed(field: str, was: Any, now: Any) -> Change:
    """A difference that the comparison for callers does not report: it may decide something all the same."""
    return Change(field, "changed", Weight.MAJOR, was, now)


def fewer_approvals(old: ToolDefinition, new: ToolDefinition) -> Iterator[Change]:
    """The differences by which fewer calls need approval."""
    yield from _of_danger(old, new)
    if old.requires_confirmation and not new.requires_confirmation:
        was, now = old.requires_confirmation, new.requires_confirmation
        yield Change("requires_confirmation", "fewer calls need approval", Weight.MAJOR, was, now)


def _of_danger(old: ToolDefinition, new: ToolDefinition) -> Iterator[Change]:
    if new.danger_level.rank < old.danger_level.rank or (old.is_undeclared and not new.is_undeclared):
        before = "undeclared" if old.is_undeclared else old.danger_level
        yield Change("danger", "fewer calls need approval", Weight.MAJOR, before, new.danger_level)


def _of_approval(old: ToolDefinition, new: ToolDefinition) -> Iterator[Change]:
    """Effective danger and side effects: those that are not stated follow from other fields."""
    yield from _of_danger(old, new)
    if new.effects != old.effects and new.side_effects == old.side_effects:
        yield Change("side_effects", "follow from other capabilities", Weight.MAJOR, old.effects, new.effects)


def _has_less_to_use(old: ToolDefinition, new: ToolDefinition) -> bool:
    return all(any(_covers(held, one) for held in old.capabilities) for one in new.capabilities)


def _covers(held: Capability, one: Capability) -> bool:
    # Not a folder by its path: the folder inside may be a symlink out of it.
    return held == one or (held.kind == one.kind and held.scope in _ANY_SCOPE)


def _has_tighter_limits(old: ToolDefinition, new: ToolDefinition) -> bool:
    was, now = old.constraints, new.constraints
    return (
        now.execution_seconds <= was.execution_seconds
        and now.output_bytes <= was.output_bytes
        and now.allow_side_effects <= was.allow_side_effects
        and now.isolation.rank >= was.isolation.rank
        and now.runs_on == was.runs_on  # another machine may see other data
    )


def _has_tighter_bounds(old: ToolDefinition, new: ToolDefinition) -> bool:
    was, now = old.resource_bounds, new.resource_bounds
    network = was.max_network is None or (
        now.max_network is not None
        and now.max_network.max_requests <= was.max_network.max_requests
        and now.max_network.max_bytes <= was.max_network.max_bytes
    )
    memory = now.memory_bytes(new.constraints.isolation) <= was.memory_bytes(old.constraints.isolation)
    return network and memory and (now.max_cpu_cores or _CORES) <= (was.max_cpu_cores or _CORES)


_STRICTER: Final[dict[str, Callable[[ToolDefinition, ToolDefinition], bool]]] = {
    "capabilities": _has_less_to_use,
    "constraints": _has_tighter_limits,
    "resource_bounds": _has_tighter_bounds,
    "required_permissions": lambda old, new: {*old.required_permissions} <= {*new.required_permissions},
    "requires_confirmation": lambda _, new: new.requires_confirmation,
    "sensitive": lambda _, new: new.sensitive,
    "enabled": lambda _, new: not new.enabled,
    "danger": lambda *_: True,  # `_of_approval` judges the effective danger
}
