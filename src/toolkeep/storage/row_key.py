"""The servers' own key, under which rows of a shared database that decide something carry a MAC.

Whoever has only the credential of the database can read, delete and put back such rows, but write none that
a server takes for its own.
"""

import hashlib
import hmac


class RowKey:
    """Makes and checks the MACs of rows."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def mac(self, *parts: str | bytes) -> bytes:
        """The MAC over the parts of a row; the first names its kind."""
        encoded = [part.encode() if isinstance(part, str) else part for part in parts]
        # With their lengths: the parts of one row must not read as those of another.
        message = b"".join(b"%d:%s" % (len(part), part) for part in encoded)
        return hmac.digest(self._key, message, hashlib.sha256)

    def is_authentic(self, mac: object, *parts: object) -> bool:
        """Whether a server with the same key wrote a row, of whatever types the database answers with.

        Give as parts what was asked for, not what the row says that it is: a database can answer with the
        authentic row of something else.
        """
        given = [part for part in parts if isinstance(part, str | bytes)]
        if not isinstance(mac, bytes) or len(given) != len(parts):
            return False
        return hmac.compare_digest(mac, self.mac(*given))
