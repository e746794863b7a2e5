"""Authorization stage: grants, protected paths and Cedar policies decide whether an agent may make a call."""
