"""What passes between calls: sessions, origins of arguments, labels of results (FLO)."""
