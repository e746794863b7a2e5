"""The services of one scenario, and everywhere that outsiders can write in them."""

from tests.hostile.flow.services import files, issues, mail, payments, web
from tests.hostile.flow.services.service import Service

TOOLS = (*mail.TOOLS, *files.TOOLS, *payments.TOOLS, *web.TOOLS, *issues.TOOLS)

_KINDS: dict[str, type[Service]] = {
    "mail": mail.Mail,
    "files": files.Files,
    "payments": payments.Payments,
    "web": web.Web,
    "issues": issues.Issues,
}
TEXTS = tuple(f"{name}.{place}" for name, kind in _KINDS.items() for place in kind.texts)
"""The places that hold free text of outsiders, such as `mail.body`."""
NAMES = tuple(f"{name}.{place}" for name, kind in _KINDS.items() for place in kind.names)
"""The places where outsiders choose a short value, such as `mail.sender`."""


class World:
    """All services as they are before the user's first word. Tools act on the newest world."""

    def __init__(self) -> None:
        self.mail = mail.Mail()
        self.files = files.Files()
        self.payments = payments.Payments()
        self.web = web.Web()
        self.issues = issues.Issues()

    def plant(self, place: str, text: str) -> None:
        """Let an outsider write a text into a place such as `mail.body`."""
        name, _, field = place.partition(".")
        service: Service = getattr(self, name)
        service.plant(field, text)
