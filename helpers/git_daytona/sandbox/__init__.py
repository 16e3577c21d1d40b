"""A sandbox of a session: its life, its repository, its terminal, and the shell code that runs in
it."""
