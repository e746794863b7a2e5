"""A keep as the toolset of an agent framework: one file each, loaded only by who uses that framework."""
