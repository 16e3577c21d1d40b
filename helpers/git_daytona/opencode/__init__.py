"""The plugin, and its place in OpenCode's configuration."""
