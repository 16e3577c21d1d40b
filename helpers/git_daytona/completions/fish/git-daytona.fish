# Completion in fish, as a file in a conf.d folder: fish's completion of git asks for that of git-daytona when it sees `git daytona`,
# and would not look for it elsewhere. The program itself says what fits (cli/boundary.py): one line each, type, value and help with tabs between.
function __daytona_candidates
    set -l words (commandline -opc) (commandline -ct)
    set -l program (string replace -r '.*/' '' -- $words[1])
    set -l variable _(string upper -- (string replace -a -- - _ $program))_COMPLETE
    set -l line (string join ' ' -- (string escape -- $words))
    for found in (env COMP_WORDS=$line COMP_CWORD=(math (count $words) - 1) $variable=lines_complete $program 2>/dev/null)
        set -l parts (string split \t -- $found)
        switch $parts[1]
            case dir
                __fish_complete_directories (commandline -ct)
            case file
                __fish_complete_path (commandline -ct)
            case plain
                printf '%s\t%s\n' $parts[2] $parts[3]
        end
    end
end

for program in git-daytona daytona-token daytona-pin daytona-local
    complete -c $program -f -k -a '(__daytona_candidates)'
end
# Newer fish does this for every git-* on PATH.
complete -c git -f -n '__fish_git_using_command daytona' -a '(__fish_git_complete_custom_command daytona)'
