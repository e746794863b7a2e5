"""Why something on the network was not done, in words that a model may read.

A reason names hosts as the caller named them, never what they resolve to: that tells of the network here.
"""


class NetworkError(Exception):
    """The root: something was not reached, or gave no usable answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.was_sent = False
        """Whether a request had gone out whole by then, and may have been carried out."""


class NetworkRefused(NetworkError):
    """It may not be reached: not granted, not public, over the budget, or asked for in a way to deceive."""


class HostUnreachable(NetworkError):
    """It may be reached, and could not be."""


class HostTooSlow(HostUnreachable):
    """It may be reached, and took too long."""


class AnswerUnusable(NetworkError):
    """It was reached, and what it said is no answer to work with."""


class AnswerTooBig(AnswerUnusable):
    """It was reached, and said too much."""
