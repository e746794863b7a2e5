"""Guest side of the sandbox: started by path, standard library only, never imported by the host."""
