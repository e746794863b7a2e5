"""Packages of upstream servers: resolved and installed once, confined, and run from the state of the keep."""
