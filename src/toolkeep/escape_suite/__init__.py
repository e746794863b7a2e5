"""Escape suite (SBX-5): hostile tools, the baits they attack, and a host that detects escapes.

`suite` runs all of it for `toolkeep doctor --attack`. Each attempt runs at every level that guarantees to
stop it, and once unconfined, to show that it would work (control). Everything happens in throw-away
namespaces, on baits made for it.
"""
