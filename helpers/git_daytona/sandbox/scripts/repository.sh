# Goes before the scripts that work on the project's repository. git is told where that is, so that
# nothing in its configuration (core.bare, core.worktree) hides it, and which formats are meant.
command -v git >/dev/null 2>&1 || give_up "git is not installed in the sandbox"
export GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1
# Hooks of git's configuration (git 2.54).
hooks_off=
for event in pre-commit prepare-commit-msg commit-msg post-commit post-index-change \
  reference-transaction; do
  hooks_off="$hooks_off -c hook.$event.enabled=false"
done
# safe.directory: the SSH side may be another user than the toolbox. protectHFS, protectNTFS: what
# git would refuse here is not committed there. ignoreCase, trustctime, checkStat: no file is taken
# for another one, or for what it was.
at='--git-dir=.git --work-tree=.'
g() {
  git $at -c safe.directory='*' -c core.hooksPath=/dev/null -c commit.gpgSign=false \
    -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false -c core.quotePath=true \
    -c core.safecrlf=false -c advice.addEmbeddedRepo=false -c core.protectHFS=true \
    -c core.protectNTFS=true -c core.ignoreCase=false -c core.trustctime=true \
    -c core.checkStat=default -c i18n.commitEncoding=UTF-8 $hooks_off "$@"
}
# Whether something like a repository is in the current directory: then it is git's to say whether
# it can be used, and what git refuses is not missing.
is_there() {
  [ ! -d .git ] || [ ! -r .git ] || set -- .git/*
  [ -e "${1:-.git}" ] || [ -L "${1:-.git}" ]
}
refuse() { say refused "$(printf %s "$1" | sed 's/^fatal: //' | one_line)"; exit 0; }
check() { complaint=$(g rev-parse --git-dir 2>&1) || refuse "$complaint"; }
# Whether HEAD's branch has no commit yet; one that cannot be read is no such branch.
unborn() {
  born=$(g symbolic-ref -q HEAD) || return 1
  listing=$(g for-each-ref --format='%(refname)' "$born" 2>&1)
  case $listing in
    '' | "$born"/*) ;;
    refs/*) return 1 ;;
    *) refuse "$listing" ;;
  esac
}
# The filters that end git where their program is missing, because they are required or are of the
# kind that runs for all files (gitattributes(5)); and the words for g that make it pass them by.
lacking() {
  g config --get-regexp '^filter\..*\.(process|smudge|clean|required)$' |
    while read -r key program _; do
      case ${key##*.}:$program in
        required:false | required:no | required:off | required:0) continue ;;
        required:*) ;;
        *: | *:*[!A-Za-z0-9_./-]*) continue ;;
        *) ! command -v "$program" >/dev/null || continue ;;
      esac
      printf '%s\n' "$key"
    done | sed -n 's/^filter\.\([A-Za-z0-9_-]*\)\.\([a-z]*\)$/\1 \2/p' | awk '
      $2 == "process" { ends[$1] }
      $2 == "required" { required[$1]; next }
      { missing[$1] }
      END { for (name in missing) if (name in ends || name in required) print name }'
}
relaxed() {
  for name in $(lacking); do echo "-c filter.$name.required=false -c filter.$name.process="; done
}
