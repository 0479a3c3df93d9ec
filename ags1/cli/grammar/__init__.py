"""The grammar of the command line: what each command takes, and its help."""
