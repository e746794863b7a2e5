"""Network errors, in words that a model may read.

A reason names hosts as the caller named them, never the addresses that they resolve to: those would reveal
the internal network.
"""


class NetworkError(Exception):
    """Root: a host was not reached, or gave no usable answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.was_sent = False
        """Whether the request was sent completely, and may have been executed: then it is not retried."""
        self.target = ""
        """Host that `reason` does not name, where a redirect leads: for the operator."""
        self.remedy = ""
        """What the operator could change; it may name addresses."""


class NetworkRefused(NetworkError):
    """The host is not allowed: not granted, not public, over budget, or requested in a deceptive way."""


class HostUnreachable(NetworkError):
    """The host is granted but the connection failed."""


class HostTooSlow(HostUnreachable):
    """The host is granted but timed out."""


class AnswerUnusable(NetworkError):
    """The host answered, but not usably."""


class AnswerTooBig(AnswerUnusable):
    """The host's answer exceeds the size limit."""
