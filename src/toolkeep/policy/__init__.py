"""MAY THIS ACTOR DO IT: a checked call becomes a permitted one, or is refused."""
