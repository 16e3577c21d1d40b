"""The tools that replace OpenCode's built-in ones: the same names, arguments and results, acting in
the session's sandbox."""
