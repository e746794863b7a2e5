"""The escape suite (SBX-5): every attempt by name, at every level that promises to stop it."""
