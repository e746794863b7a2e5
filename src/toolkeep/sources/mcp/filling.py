"""Secrets go where an upstream wants them: into its environment, or into headers; nobody else is told.

Which ones went there is remembered, so that they can be taken out of what the server says.
"""

import re
from collections.abc import Mapping
from typing import Final

from toolkeep.execution.hiding import Given
from toolkeep.wording import echo_name

_SECRET: Final = re.compile(r"\{secret:([^{}]+)\}")
_HEADER_VALUE: Final = re.compile(r"([!-~]([\t -~]*[!-~])?)?")


class Filling(Given):
    """Gives secrets to one upstream."""

    def headers(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Headers with their secrets; ValueError names one that cannot be sent, and not what it holds."""
        filled = {
            name: _SECRET.sub(lambda place: self.secret(place[1]), text) for name, text in texts.items()
        }
        for name, text in filled.items():
            if not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"its header {echo_name(name)} would hold what no header can")
        return filled
