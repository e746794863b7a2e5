"""What policies may read of flow about one call (FLO-4), each worked out when a policy reads it."""

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from toolkeep.calls import FlowRecord, UsedReference
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.meter import Reserved
from toolkeep.flow.session_state import FALLEN, ArgumentOrigin, Origin, SessionState, Snapshot

TRUSTED: Final = "trusted"
UNTRUSTED: Final = "untrusted"

Section = Collection[str] | None
"""What is read of a part of the context: the names in it, or None for all of it."""


class FlowFacts:
    """The flow of one call of a session."""

    __slots__ = (
        "_changes", "_endorsed", "_origins", "arguments", "measures", "plan", "references", "reserved",
        "session", "state",
    )  # fmt: skip

    def __init__(
        self,
        plan: Plan,
        session: SessionState | None,
        arguments: Mapping[str, Any],
        before: "FlowFacts | None" = None,
        references: Sequence[UsedReference] = (),
    ) -> None:
        """Without a session the call counts as one of a session that has seen everything.

        `before` are the facts of an earlier decision about the same call, `references` what stood in its
        arguments.
        """
        self.plan = plan
        self.session = session
        self._changes = 0 if session is None else session.changes  # before anything of the session is read
        self.state: Snapshot = session.state if session is not None else FALLEN
        self.references = references
        if any(one.secret for one in references):
            # The model did not see the secret, but the call holds it.
            self.state = replace(self.state, secret=True)
        self.arguments = arguments
        self.measures: Mapping[str, str] = {}
        """Decimals by name, of the measures that policies about this tool read."""
        self.reserved: Reserved | None = None
        """What the call holds of its measures."""
        self._origins: list[ArgumentOrigin] | None = None
        self._endorsed: bool | None = None
        if (
            before is not None
            and before.session is session
            and before._changes == self._changes  # noqa: SLF001 -- its own
            and before.plan is plan
            and before.arguments is arguments
        ):
            self._origins, self._endorsed = before._origins, before._endorsed  # noqa: SLF001 -- its own

    @property
    def origins(self) -> list[ArgumentOrigin]:
        """Where each argument with authority comes from."""
        if self._origins is None:
            self._origins = (
                [] if self.session is None else self.session.origins(self.plan, self.arguments, self.referred)
            )
        return self._origins

    @property
    def referred(self) -> list[str]:
        """The JSON Pointers where references stood in the arguments."""
        return [one.pointer for one in self.references]

    @property
    def is_trusted(self) -> bool:
        """Whether everything with authority was named by the user or made by a service."""
        return self.session is not None and all(origin.is_trusted for origin in self.origins)

    @property
    def is_endorsed(self) -> bool:
        """Whether a person agreed in this session to where the call sends something."""
        if self._endorsed is None:
            session = self.session
            self._endorsed = session is not None and session.is_endorsed(
                self.plan, self.arguments, secret=self.state.secret
            )
        return self._endorsed

    def section(self, name: str, read: Section) -> Any:
        """One part of the Cedar context, reduced to what is read."""
        if name == "authority":
            return TRUSTED if self.is_trusted else UNTRUSTED
        if name == "endorsed":
            return self.is_endorsed
        if name == "state":
            held = [(one, getattr(self.state, one)) for one in read or STATE_NAMES]
            return {one: sorted(value) if type(value) is frozenset else value for one, value in held}
        if name == "measures":
            return {
                one: {"__extn": {"fn": "decimal", "arg": self.measures[one]}}
                for one in (self.measures if read is None else read)
            }
        return {one: self._of_argument(one) for one in read or self.plan.roles if one in self.plan.roles}

    def to_record(self) -> FlowRecord:
        """The same as the log holds it; the origins only of a call that acts."""
        origins = self.origins if self.plan.acts else ()
        if len(origins) > 1:
            origins = sorted(origins, key=lambda one: one.name.encode("utf-16-be", "surrogatepass"))
        return FlowRecord(
            opened=self.state.opened,
            secret=self.state.secret,
            measures=dict(self.measures) if self.measures else UNSET,
            origins={one.name: _words(one.origins) for one in origins},
            session=self.session.key if self.session is not None else "",
        )

    def _of_argument(self, name: str) -> dict[str, Any]:
        role = self.plan.role(name)
        if name not in self.arguments:
            return {"origins": [], "trusted": True, "role": role.value}
        if name in self.plan.free:
            session, value = self.session, self.arguments[name]
            found = [] if session is None else [session.origin(self.plan, name, value, self.referred)]
        else:
            found = [origin for origin in self.origins if origin.name == name]
        return {
            "origins": sorted({one.value for origin in found for one in origin.origins}),
            "trusted": self.session is not None and all(origin.is_trusted for origin in found),
            "role": role.value,
        }


STATE_NAMES: Final = ("after", "hosts", "opened", "secret", "wrote")


@cache
def _words(origins: frozenset[Origin]) -> tuple[str, ...]:
    return tuple(sorted([origin.value for origin in origins]))
