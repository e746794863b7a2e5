"""Egress proxy for a persistent process; budgets and contacts are counted per call."""

import socket
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from toolkeep.calls import RegisteredTool
from toolkeep.execution.contact_events import OnContact
from toolkeep.network.allowlist import HostAllowlist

if TYPE_CHECKING:
    from toolkeep.network.egress_proxy import Contact, EgressProxy


class EgressPort:
    """The egress proxy of one persistent process, for its lifetime."""

    def __init__(self, hosts: HostAllowlist, told: OnContact | None = None) -> None:
        """`told` hears the contacts before the first call: a program may make some when it starts."""
        self._hosts = hosts
        self._egress: EgressProxy | None = None
        self._told = told

    def serve(self, listeners: Sequence[socket.socket]) -> AbstractAsyncContextManager[object]:
        """Factory of the proxy on the process's listening sockets."""
        from toolkeep.network.egress_proxy import (
            EgressProxy,  # Imports HTTP, which most keeps never need.
        )

        self._egress = EgressProxy(listeners, self._hosts, max_seconds=None, on_contact=self._tell)
        return self._egress

    def begin(self, tool: RegisteredTool, told: OnContact) -> None:
        """Start a call: new budget, empty contact list, new listener."""
        self._told = told
        if self._egress is not None:
            from toolkeep.network.budget import Budget

            self._egress.budget = Budget(tool.definition.resource_bounds.max_network)
            self._egress.contacts.clear()

    def _tell(self, contact: "Contact") -> None:
        if self._told is not None:
            self._told(contact)
