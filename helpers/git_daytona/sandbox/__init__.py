"""A session's sandbox: its life, repository and terminal, and the shell code that runs in it."""
