"""One push or fetch: a lease, an SSH connection, and what became of it."""
