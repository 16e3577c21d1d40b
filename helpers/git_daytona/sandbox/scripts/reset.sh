# Goes before the scripts that run nothing of the user's: takes away what a sandbox's environment, as
# it was ordered, would change in them. Who commits, and git's configuration, stay.
for name in $(env | sed -n 's/^\(GIT_[A-Za-z0-9_]*\)=.*/\1/p'); do
  case $name in
    GIT_AUTHOR_NAME | GIT_AUTHOR_EMAIL | GIT_COMMITTER_NAME | GIT_COMMITTER_EMAIL) ;;
    GIT_CONFIG_GLOBAL | GIT_CONFIG_SYSTEM | GIT_CONFIG_NOSYSTEM) ;;
    *) unset "$name" ;;
  esac
done
unset CDPATH LD_AUDIT LD_PRELOAD POSIXLY_CORRECT TAR_OPTIONS
export LC_ALL=C
