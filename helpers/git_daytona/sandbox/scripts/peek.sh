# The end of what a running command has said. Arguments: id of the call, bytes.
tail -c "$2" "$HOME/.local/share/opencode/tool-output/tool_$1"
