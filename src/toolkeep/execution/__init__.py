"""RUN IT: a recorded call becomes raw output, inside its limits, or is refused."""
