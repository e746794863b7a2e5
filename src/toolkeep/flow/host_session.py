"""`Session`: what a host holds of one conversation of an agent, and tells about it (FLO-3)."""

from toolkeep.flow.session_state import SessionState


class Session:
    """One conversation of an agent. Made by `Keep.session`; hand it to the calls of that conversation."""

    __slots__ = ("_state",)

    def __init__(self, state: SessionState) -> None:
        self._state = state

    def __repr__(self) -> str:
        words = ["opened" if self.is_opened else "clean", *(["secret"] if self.is_secret else [])]
        return f"<Session {self.id!r} of {self.agent!r}, {' and '.join(words)}>"

    @property
    def agent(self) -> str:
        """The agent that it belongs to."""
        return self._state.agent

    @property
    def id(self) -> str:
        """Its name, as the log holds it."""
        return self._state.id

    @property
    def is_opened(self) -> bool:
        """Whether text from outside was shown to the model."""
        return self._state.state.opened

    @property
    def is_secret(self) -> bool:
        """Whether the model was shown what only the user may know."""
        return self._state.state.secret

    def said(self, text: str) -> None:
        """Add the user's own words: a value that they name may be acted on. Never text that was pasted."""
        self._state.said(text)

    def pasted(self, text: str) -> None:
        """Add text of others that the user put into the conversation, such as a mail or a file."""
        self._state.pasted(text)


def state_of(session: Session) -> SessionState:
    """What a keep knows of a session that a host holds."""
    return session._state  # noqa: SLF001 -- the other half of the class, which hosts do not see
