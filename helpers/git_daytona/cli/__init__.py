"""The command lines: one module per executable."""
