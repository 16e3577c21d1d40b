"""The toolbox API: commands, files, git and terminals inside a sandbox."""
