"""Injects secrets into the environment or headers of an upstream, and nowhere else.

Injected secrets are remembered, so that they can be redacted from what the server says.
"""

import re
from collections.abc import Mapping
from typing import Final

from toolkeep.execution.redact import KnownSecrets
from toolkeep.text.display import echo_name

_SECRET: Final = re.compile(r"\{secret:([^{}]+)\}")
_HEADER_VALUE: Final = re.compile(r"([!-~]([\t -~]*[!-~])?)?")


class SecretInjection(KnownSecrets):
    """Injects the secrets of one upstream."""

    def headers(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Headers with `{secret:NAME}` replaced.

        ValueError names an invalid header without showing its value.
        """
        filled = {
            name: _SECRET.sub(lambda place: self.secret(place[1]), text) for name, text in texts.items()
        }
        for name, text in filled.items():
            # A line break in a secret would inject further headers.
            if not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"its header {echo_name(name)} would have a value that headers cannot have")
        return filled
