"""git-daytona: OpenCode sessions in Daytona sandboxes, and their work back through plain git."""

__version__ = "0.1.0"
