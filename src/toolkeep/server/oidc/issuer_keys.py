"""The public keys of an issuer: fetched when they are needed, bounded, renewed, shared by all who wait.

A provider that is slow, away or hostile delays only callers whose token names a key that is not known yet.
"""

import asyncio
import base64
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from toolkeep.config.identity_settings import Issuer

log = logging.getLogger("toolkeep.server")

Key = RSAKey | ECKey | OKPKey
Fetch = Callable[[], Awaitable[dict[str, Any]]]
"""Gets the key set of the issuer; raises `KeysUnavailable`."""

_FRESH_SECONDS: Final = 600.0
"""After that, keys are fetched again beside the requests that use them."""
_STALE_SECONDS: Final = 3600.0
"""How long keys count while the issuer cannot be reached."""
_AGAIN_SECONDS: Final = 60.0
"""Between two fetches: anybody can make up tokens that name unknown keys."""
_KEYS: Final = 100
_RSA_BITS: Final = range(2048, 8193)
"""Larger ones only cost time: a signature takes 0.6 ms to verify with 8,192 bits, 8 ms with 16,384."""
_RSA_EXPONENT_BYTES: Final = 4
"""Everybody uses 65537; with a long exponent, to verify a signature takes 10 ms."""
_CURVES: Final = {
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "Ed25519": "Ed25519",
    "EdDSA": "Ed25519",
}


class KeysUnavailable(Exception):
    """The keys of an issuer could not be fetched."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy
        """What the operator could change, if that is known; it may name addresses."""


class IssuerKeys:
    """The keys of one issuer by their ids."""

    def __init__(self, issuer: Issuer, fetch: Fetch, clock: Callable[[], float] = time.monotonic) -> None:
        self._issuer = issuer
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, Key] = {}
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        self._fetching: asyncio.Task[None] | None = None

    def known(self, key_id: str) -> Key | None:
        """A key that counts now, without waiting for the issuer."""
        age = self._clock() - self._fetched_at
        key = self._keys.get(key_id) if age < _STALE_SECONDS else None
        # Beside the request. Tokens that were verified before ask, too: else a key would count for an hour.
        if key is not None and age > _FRESH_SECONDS:
            self._begin()
        return key

    def has(self, key_id: str, key: Key) -> bool:
        """Whether the issuer still publishes exactly this key, as far as is known."""
        return self.known(key_id) is key

    async def find(self, key_id: str) -> Key | None:
        """A key by its id; asks the issuer if it is not known, at most once a minute."""
        key = self.known(key_id)
        if key is not None:
            return key
        fetching = self._begin()
        if fetching is not None:
            await asyncio.shield(fetching)
        return self.known(key_id)

    def _begin(self) -> "asyncio.Task[None] | None":
        """The fetch under way, or a new one if one is due."""
        if self._fetching is None and self._clock() - self._tried_at >= _AGAIN_SECONDS:
            self._tried_at = self._clock()
            self._fetching = asyncio.ensure_future(self._renew())
        return self._fetching

    async def _renew(self) -> None:
        try:
            document = await self._fetch()
            found, held = read_keys(document, self._issuer.algorithm), self._keys
            # A key that is still published stays the same object: `has` is asked by each request.
            self._keys = {
                key_id: held[key_id] if key_id in held and held[key_id].as_dict() == key.as_dict() else key
                for key_id, key in found.items()
            }
            self._fetched_at = self._clock()
        except KeysUnavailable as error:
            extra = {"issuer": self._issuer.issuer, "reason": str(error)}
            log.warning("the keys of an issuer could not be fetched", extra=extra)
        except Exception:
            log.exception("the keys of an issuer could not be read", extra={"issuer": self._issuer.issuer})
        finally:
            self._fetching = None


def read_keys(document: Mapping[str, Any], algorithm: str) -> dict[str, Key]:
    """The keys of a set that may sign with this algorithm; what cannot is left out.

    Two keys with one id are both left out: which of them is meant could not be told.
    """
    listed = document.get("keys")
    if not isinstance(listed, list) or len(listed) > _KEYS:
        raise KeysUnavailable(f"it has no list of at most {_KEYS} keys")
    found: dict[str, Key] = {}
    twice: set[str] = set()
    for data in listed:
        key_id = data.get("kid") if isinstance(data, dict) else None
        if not isinstance(key_id, str) or not key_id:
            continue
        if key_id in found:
            twice.add(key_id)
        if (key := _key(data, algorithm)) is not None:
            found[key_id] = key
    return {key_id: key for key_id, key in found.items() if key_id not in twice}


def _key(data: Mapping[str, Any], algorithm: str) -> Key | None:
    if data.get("use", "sig") != "sig" or data.get("alg", algorithm) != algorithm:
        return None
    if "key_ops" in data and "verify" not in (data["key_ops"] or ()):
        return None
    # Only what a public key has: a private one that was published by mistake signs for anybody.
    if "d" in data or "k" in data:
        return None
    public = {name: value for name, value in data.items() if name in ("kty", "n", "e", "crv", "x", "y")}
    try:
        if algorithm[:2] in ("RS", "PS"):
            modulus, exponent = (
                base64.urlsafe_b64decode(public[name] + "==").lstrip(b"\0") for name in ("n", "e")
            )
            is_usual = 8 * len(modulus) in _RSA_BITS and len(exponent) <= _RSA_EXPONENT_BYTES
            return RSAKey.import_key(public) if is_usual else None
        if data.get("crv") != _CURVES[algorithm]:
            return None
        return ECKey.import_key(public) if algorithm[:2] == "ES" else OKPKey.import_key(public)
    except (JoseError, ValueError, TypeError, KeyError):
        return None
