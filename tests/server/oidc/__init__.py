"""Tokens of issuers."""
