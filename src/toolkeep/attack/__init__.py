"""The escape suite (SBX-5): hostile tools, the baits they are after, and a host that sees what got out.

`suite` runs all of it for `toolkeep doctor --attack`. Each attempt runs at every level that promises to stop
it, and once with nothing around it, to show that it would work. All of this happens in namespaces that are
thrown away afterwards, on loot that is made for it.
"""
