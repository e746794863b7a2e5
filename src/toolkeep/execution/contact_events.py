"""Emits an event for each network contact of a call, and remembers the host that a call was denied last."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from toolkeep.calls import RecordedCall
from toolkeep.events import Bus, ContactRefused, HostContacted

if TYPE_CHECKING:
    from toolkeep.network.egress_proxy import Contact

OnContact = Callable[["Contact"], None]

_CALLS: Final = 1000
"""Calls with a denied contact at once."""


class ContactEvents:
    """Turns contacts of an egress proxy into events."""

    def __init__(self, bus: Bus | None = None) -> None:
        self._bus = bus
        self._denied: dict[str, Contact] = {}
        """By call, until the call ends."""

    def of(self, call: RecordedCall) -> OnContact:
        """Listener for the contacts of a call."""
        return partial(self._tell, call)

    def take_denied(self, call: RecordedCall) -> "Contact | None":
        """The last contact that the call was denied, once."""
        return self._denied.pop(call.request.id, None)

    def _tell(self, call: RecordedCall, contact: "Contact") -> None:
        if contact.is_denied:
            # A persistent program also contacts hosts after its call: nobody takes those.
            if len(self._denied) >= _CALLS:
                self._denied.pop(next(iter(self._denied)))
            self._denied[call.request.id] = contact
        if self._bus is None or not self._bus.listeners:
            return
        told: dict[str, Any] = {
            "tool_name": call.tool.name,
            "agent": call.request.agent,
            "method": contact.method,
            "host": contact.host,
            "port": contact.port,
            "correlation_id": call.request.correlation_id,
        }
        if contact.problem:
            self._bus.tell(ContactRefused(reason=contact.problem, **told))
        else:
            sizes: dict[str, Any] = {
                "sent_bytes": contact.sent_bytes,
                "received_bytes": contact.received_bytes,
                "is_private": contact.is_private,
            }
            self._bus.tell(HostContacted(**told, **sizes))
