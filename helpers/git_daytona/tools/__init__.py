"""The tools that replace OpenCode's built-in ones, with the same names, arguments and results."""
