"""How a keep guards what passes between calls. Imports nothing of it, so that listing tools stays cheap."""

from typing import Any, Final, Literal

import msgspec

from toolkeep.flow.measures import NO_MEASURES, Measures, read_measures

DAY_S: Final = 86_400.0
"""A caller that was silent for a day is taken for a new one; the tasks of agents are shorter."""


class FlowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The key `flow` of a configuration, or the argument of `open_keep`."""

    policy: Literal["", "standard"] = ""
    """The shipped policies to use beside those of the operator."""
    spare: Literal["", "medium"] = ""
    """The danger that is not asked about where the shipped policies let a call pass."""
    view: Literal["plain", "typed"] = "plain"
    """What models are shown of results: all of it, or typed values and references to texts."""
    idle_s: float = DAY_S
    """After this time without a call, a remote caller begins anew."""
    measures: Measures = NO_MEASURES

    @property
    def is_standard(self) -> bool:
        """Whether the shipped policies are in force."""
        return self.policy == "standard"

    @property
    def has_typed_views(self) -> bool:
        """Whether models are shown references to texts."""
        return self.view == "typed"

    def spares(self, asked_by: tuple[str, ...]) -> bool:
        """Whether a medium danger is not asked about, where nothing else asks."""
        return bool(self.spare) and not asked_by

    def beside(self, before: "FlowSettings | None") -> "FlowSettings":
        """These settings where others are in force: their policies, measures and budgets stay."""
        if before is None:
            return self
        return msgspec.structs.replace(
            self,
            policy=self.policy or before.policy,
            view="typed" if before.has_typed_views else self.view,
            measures=before.measures.joined(self.measures),
        )


NO_FLOW: Final = FlowSettings()


def read_flow(data: Any) -> FlowSettings:
    """Settings from data; ValueError says what is wrong."""
    if data is None:
        return NO_FLOW
    plain = ("policy", "spare", "view", "idle_s")
    if not isinstance(data, dict) or not data.keys() <= {*plain, "measures", "budget"}:
        raise ValueError("flow must be an object with policy, spare, view, idle_s, measures and budget")
    measures = read_measures(data.get("measures"), data.get("budget"))
    try:
        given = {key: data[key] for key in plain if key in data}
        settings = msgspec.structs.replace(msgspec.convert(given, FlowSettings), measures=measures)
    except msgspec.ValidationError:
        message = "flow.policy must be standard, flow.spare medium, flow.view typed, and flow.idle_s seconds"
        raise ValueError(message) from None
    if settings.spare and not settings.is_standard:
        raise ValueError("flow.spare needs flow.policy: standard, which decides which calls need no approval")
    return settings
