# Stands before the tools' other scripts. A path of the model begins with / or ~; "~" is the sandbox's home.
expand() { # path → $path
  case $1 in
    "~") path=$HOME ;;
    "~/"*) path=$HOME/${1#"~/"} ;;
    *) path=$1 ;;
  esac
}
one_line() { base64 | tr -d '\n'; echo; } # anything, as one line of the answer
