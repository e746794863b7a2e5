"""Leads a program that stays to its hosts, for as long as it does; budgets and contacts are of one call."""

import socket
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from toolkeep.calls import RegisteredTool
from toolkeep.execution.contacts import Told
from toolkeep.network.reaching import HostReach

if TYPE_CHECKING:
    from toolkeep.network.egress import Contact, Egress


class WayOut:
    """Leads a program that stays to its hosts, for as long as it does."""

    def __init__(self, hosts: HostReach) -> None:
        self._hosts = hosts
        self._egress: Egress | None = None
        self._told: Told | None = None

    def serve(self, listener: socket.socket) -> AbstractAsyncContextManager[object]:
        """What serves the port of the program."""
        from toolkeep.network.egress import Egress  # with it comes HTTP, which most keeps never need

        self._egress = Egress(listener, self._hosts, max_seconds=None, on_contact=self._tell)
        return self._egress

    def begin(self, tool: RegisteredTool, told: Told) -> None:
        """Count requests and bytes anew, and tell of contacts."""
        self._told = told
        if self._egress is not None:
            from toolkeep.network.budget import Budget

            self._egress.budget = Budget(tool.definition.resource_bounds.max_network)
            self._egress.contacts.clear()

    def _tell(self, contact: "Contact") -> None:
        if self._told is not None:
            self._told(contact)
