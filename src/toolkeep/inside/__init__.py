"""What runs in the confined processes: started by path, standard library only, imported by nobody."""
