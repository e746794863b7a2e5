"""Events in; logs out. May fail, never blocks a call."""
