"""Callers that an OpenID Connect issuer vouches for (IDN-1)."""
