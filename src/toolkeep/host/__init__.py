"""Operating system services: clock, files, fork handlers, random ids, token bucket."""
