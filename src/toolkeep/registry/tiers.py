"""What each tier includes (POL-6). Validation is full at every tier."""

from typing import Final

import msgspec

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.vocabulary import Isolation, Tier
from toolkeep.errors import LicenseRequired

BUILT_INS: Final = (
    "read_file", "write_file", "list_directory", "grep_search", "edit_code",
    "run_command", "http_fetch", "web_search",
)  # fmt: skip
"""The built-in tools that tiers count, in the order in which tiers include them."""


class TierLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one tier includes."""

    built_in: int
    """The number of `BUILT_INS`."""
    custom: int | None
    """The number of custom definitions; None for no limit."""
    isolation: Isolation
    """The strongest isolation that a custom definition may require."""
    has_own_formats: bool = False
    """Whether custom `format` checks can be registered."""


ALLOWANCES: Final = {
    Tier.CORE: TierLimits(built_in=5, custom=0, isolation=Isolation.STANDARD),
    Tier.WRITER_PRO: TierLimits(built_in=5, custom=10, isolation=Isolation.STANDARD),
    Tier.TEAMS: TierLimits(built_in=8, custom=50, isolation=Isolation.STRICT),
    Tier.ENTERPRISE: TierLimits(
        built_in=8, custom=None, isolation=Isolation.RESTRICTED, has_own_formats=True
    ),
}


def includes_built_in(tier: Tier, name: str) -> bool:
    """Whether a built-in tool is part of the tier; tools that tiers do not count are part of all."""
    return name not in BUILT_INS or BUILT_INS.index(name) < ALLOWANCES[tier].built_in


def check_count(tier: Tier, held: int) -> None:
    """Raise `LicenseRequired` if one more custom definition is too many."""
    allowed = ALLOWANCES[tier].custom
    if allowed is not None and held >= allowed:
        needed = next(t for t in Tier if (more := ALLOWANCES[t].custom) is None or more > held)
        count = "a custom definition" if not allowed else f"more than {allowed} custom definitions"
        raise LicenseRequired(count, tier=tier.value, needed=needed.value)


def check_custom(tier: Tier, definition: ToolDefinition) -> None:
    """Raise `LicenseRequired` if a custom definition requires more than the tier includes."""
    asked = definition.constraints.isolation
    if asked.rank > ALLOWANCES[tier].isolation.rank:
        needed = next(t for t in Tier if ALLOWANCES[t].isolation.rank >= asked.rank)
        what = f"the isolation {asked.value} of custom tool {definition.name!r}"
        raise LicenseRequired(what, tier=tier.value, needed=needed.value)


def needed_tier(definition: ToolDefinition, *, is_built_in: bool) -> Tier:
    """The lowest tier that includes a definition."""
    if is_built_in:
        return next(tier for tier in Tier if includes_built_in(tier, definition.name))
    rank = definition.constraints.isolation.rank
    return next(
        tier for tier in Tier if ALLOWANCES[tier].custom != 0 and ALLOWANCES[tier].isolation.rank >= rank
    )


def check_formats(tier: Tier) -> None:
    """Raise `LicenseRequired` if custom `format` checks are not part of the tier."""
    if not ALLOWANCES[tier].has_own_formats:
        needed = next(t for t in Tier if ALLOWANCES[t].has_own_formats)
        raise LicenseRequired("a format check of your own", tier=tier.value, needed=needed.value)
