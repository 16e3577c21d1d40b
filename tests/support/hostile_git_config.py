"""Every key of git-config(1) with hostile values: what a user's configuration can say at worst and
git still reads.

``{d}`` is a folder of the test: ``{d}/evil`` a program that leaves a mark and fails, ``{d}/hooks``
holds such hooks, ``{d}/attributes`` and ``{d}/excludes`` are files, ``{d}/skip`` is empty.
"""

import re
import subprocess

# key | value in the first round | in the second (none: the same)
_TABLE = r"""
add.interactive.useBuiltin | false
alias.fetch | !'{d}/evil'
alias.fetch.command | !'{d}/evil'
alias.for-each-ref.command | !'{d}/evil'
alias.push | !'{d}/evil'
alias.for-each-ref | !'{d}/evil'
alias.daytona | !'{d}/evil'
attr.tree | HEAD
author.email | a@example.invalid
author.name | Somebody Else
bitmapPseudoMerge.x.decay | 1
bitmapPseudoMerge.x.maxMerges | 1
bitmapPseudoMerge.x.pattern | refs/
bitmapPseudoMerge.x.sampleRate | 1
bitmapPseudoMerge.x.stableSize | 1
bitmapPseudoMerge.x.stableThreshold | never
bitmapPseudoMerge.x.threshold | now
blame.coloring | highlightRecent
branch.autoSetupMerge | always | false
branch.autoSetupRebase | always
branch.sort | -committerdate
branch.main.description | x
branch.main.merge | refs/heads/nowhere
branch.main.mergeOptions | --no-commit
branch.main.pushRemote | nowhere
branch.main.rebase | true
branch.main.remote | nowhere
branch.opencode/1.pushRemote | nowhere
branch.opencode/1.remote | nowhere
branch.opencode/1.merge | refs/heads/nowhere
browser.x.cmd | {d}/evil
browser.x.path | {d}/evil
bundle.heuristic | creationToken
bundle.mode | any
bundle.version | 1
bundle.x.creationToken | 1
bundle.x.uri | file://{d}/excludes
checkout.defaultRemote | nowhere
checkout.thresholdForParallelism | 1
checkout.workers | 4 | 0
clone.defaultRemoteName | sandbox-1
color.pager | true | false
color.ui | always
column.branch | always
column.clean | always
column.status | always
column.tag | always
column.ui | always
commit.cleanup | scissors | strip
commit.gpgSign | true
commit.status | true
commit.template | {d}/excludes
commit.verbose | 2
commitGraph.changedPathsVersion | 2 | -1
commitGraph.generationVersion | 1
commitGraph.maxNewFilters | 0
committer.email | c@example.invalid
committer.name | Somebody Else
core.abbrev | 4 | 40
core.alternateRefsCommand | '{d}/evil'
core.alternateRefsPrefixes | refs/none
core.askPass | {d}/evil
core.attributesFile | {d}/attributes
core.autocrlf | true | input
core.bare | true
core.bigFileThreshold | 1 | 1g
core.checkRoundtripEncoding | UTF-16
core.checkStat | minimal
core.commentChar | x
core.commentString | //
core.compression | 0 | 9
core.createObject | rename | link
core.deltaBaseCacheLimit | 1
core.editor | '{d}/evil'
core.eol | crlf | lf
core.excludesFile | {d}/excludes
core.filesRefLockTimeout | 0 | -1
core.fsmonitor | {d}/evil | true
core.fsmonitorHookVersion | 1 | 2
core.fsync | all | none
core.fsyncMethod | writeout-only | batch
core.gitProxy | {d}/evil
core.hooksPath | {d}/hooks
core.lockfilePid | true
core.logAllRefUpdates | always | false
core.looseCompression | 0
core.maxTreeDepth | 9
core.notesRef | refs/notes/x
core.packedGitLimit | 64k
core.packedGitWindowSize | 64k
core.packedRefsTimeout | 0 | -1
core.pager | '{d}/evil'
core.repositoryFormatVersion | 1
core.safecrlf | true | warn
core.sharedRepository | world | 0600
core.sshCommand | '{d}/evil'
core.untrackedCache | true | keep
core.whitespace | blank-at-eol,tabwidth=2
core.worktree | {d}
credential.helper | !'{d}/evil'
credential.username | intruder
credential.https://x.helper | !'{d}/evil'
credentialStore.lockTimeoutMS | 0
diff.algorithm | patience
diff.colorMoved | zebra
diff.colorMovedWS | no
diff.context | 0
diff.dirstat | lines
diff.dstPrefix | x/
diff.evil.trustExitCode | true
diff.external | {d}/evil
diff.guitool | evil
diff.ignoreSubmodules | all | none
diff.interHunkContext | 9
diff.noPrefix | true
diff.orderFile | {d}/excludes
diff.relative | true
diff.renameLimit | 1
diff.renames | copies | false
diff.srcPrefix | y/
diff.statGraphWidth | 1
diff.statNameWidth | 1
diff.submodule | diff
diff.tool | evil
diff.wordRegex | .
diff.wsErrorHighlight | all
diff.evil.binary | true
diff.evil.cachetextconv | true
diff.evil.command | '{d}/evil'
diff.evil.textconv | '{d}/evil'
diff.evil.wordRegex | .
diff.evil.xfuncname | .
difftool.evil.cmd | '{d}/evil'
difftool.evil.path | {d}/evil
extensions.objectFormat | sha256
extensions.worktreeConfig | true
fastimport.unpackLimit | 1
fetch.bundleCreationToken | 1
fetch.bundleURI | file://{d}/excludes
fetch.fsck.skipList | {d}/skip
fetch.fsck.badTimezone | ignore | error
fetch.fsck.missingEmail | ignore | error
fetch.negotiationAlgorithm | skipping | noop
fetch.output | compact
fetch.parallel | 0 | 9
fetch.recurseSubmodules | true | on-demand
fetch.unpackLimit | 100000
filter.evil.clean | '{d}/evil'
filter.evil.process | '{d}/evil'
filter.evil.required | true
filter.evil.smudge | '{d}/evil'
format.pretty | oneline | %C(red)%H
format.outputDirectory | {d}
fsck.skipList | {d}/skip
fsmonitor.socketDir | {d}
gc.aggressiveDepth | 1
gc.aggressiveWindow | 1
gc.auto | 1
gc.autoDetach | false
gc.autoPackLimit | 1
gc.bigPackThreshold | 1
gc.logExpiry | now
gc.maxCruftSize | 1
gc.pruneExpire | now
gc.recentObjectsHook | {d}/evil
gc.reflogExpire | now
gc.reflogExpireUnreachable | now
gc.refs/heads/*.reflogExpire | now
gc.refs/heads/*.reflogExpireUnreachable | now
gc.repackFilter | blob:none
gc.repackFilterTo | {d}/aside
gc.rerereResolved | 0
gc.rerereUnresolved | 0
gc.worktreePruneExpire | now
gpg.format | ssh | x509
gpg.program | {d}/evil
gpg.ssh.program | {d}/evil
gpg.minTrustLevel | ultimate
gpg.ssh.allowedSignersFile | {d}/excludes
gpg.ssh.defaultKeyCommand | {d}/evil
gpg.ssh.revocationFile | {d}/excludes
grep.patternType | perl
grep.threads | 1
guitool.evil.cmd | {d}/evil
guitool.evil.argPrompt | true
guitool.evil.confirm | true
guitool.evil.needsFile | true
guitool.evil.noConsole | true
guitool.evil.noRescan | true
guitool.evil.prompt | true
guitool.evil.revPrompt | true
guitool.evil.revUnmerged | true
guitool.evil.title | true
help.autoCorrect | immediate
hook.jobs | 2
hook.pre-push.jobs | 2
http.keepAliveCount | 1
http.keepAliveIdle | 1
http.keepAliveInterval | 1
http.maxRequests | 1
http.maxRetries | 9
http.maxRetryTime | 9
http.minSessions | 1
http.postBuffer | 1
http.lowSpeedLimit | 1
http.lowSpeedTime | 1
http.proactiveAuth | auto
http.proxy | http://127.0.0.1:9
http.https://x.proxy | http://127.0.0.1:9
http.retryAfter | 9
i18n.commitEncoding | latin1 | utf-16
i18n.logOutputEncoding | latin1 | utf-16
include.path | {d}/included
includeIf.gitdir:/.path | {d}/included
index.skipHash | true
index.threads | 1 | true
index.version | 4 | 2
init.defaultBranch | trunk
init.defaultObjectFormat | sha256
init.defaultRefFormat | reftable
init.templateDir | {d}/hooks
interactive.diffFilter | '{d}/evil'
log.date | relative
log.decorate | full
log.diffMerges | combined
log.excludeDecoration | *
log.graphColors | red
log.initialDecorationSet | all
log.showSignature | true
lsrefs.unborn | ignore | advertise
mailmap.blob | HEAD:README
mailmap.file | {d}/excludes
maintenance.auto | true
maintenance.commit-graph.auto | -1
maintenance.geometric-repack.auto | -1
maintenance.geometric-repack.splitFactor | 2
maintenance.incremental-repack.auto | -1
maintenance.loose-objects.auto | -1
maintenance.gc.enabled | true
maintenance.gc.schedule | hourly
maintenance.loose-objects.batchSize | 1
maintenance.reflog-expire.auto | -1
maintenance.rerere-gc.auto | -1
maintenance.strategy | incremental
maintenance.worktree-prune.auto | -1
man.evil.cmd | {d}/evil
man.evil.path | {d}/evil
merge.conflictStyle | zdiff3
merge.directoryRenames | conflict
merge.evil.driver | '{d}/evil' %O %A %B
merge.evil.name | evil
merge.evil.recursive | evil
merge.ff | only
merge.log | 9
merge.renameLimit | 1
merge.renames | false
merge.suppressDest | main
merge.tool | evil
merge.verbosity | 5
mergetool.evil.cmd | '{d}/evil'
mergetool.evil.layout | x
mergetool.evil.path | {d}/evil
mergetool.evil.hideResolved | true
mergetool.evil.trustExitCode | true
notes.displayRef | refs/notes/*
notes.mergeStrategy | union
notes.x.mergeStrategy | union
notes.rewrite.amend | true
notes.rewriteMode | concatenate
notes.rewriteRef | refs/notes/*
pack.compression | 0 | 9
pack.deltaCacheLimit | 1
pack.deltaCacheSize | 1
pack.depth | 0 | 1
pack.indexVersion | 1 | 2
pack.island | refs/heads/(.*)
pack.islandCore | main
pack.packSizeLimit | 1m
pack.preferBitmapTips | refs/heads/
pack.threads | 1
pack.usePathWalk | true | false
pack.window | 0 | 1
pack.windowMemory | 1
pager.fetch | '{d}/evil'
pager.push | '{d}/evil'
pager.config | '{d}/evil'
pager.for-each-ref | true
pretty.medium | format:%H
promisor.acceptFromServer | all | knownName
promisor.acceptFromServerUrl | *
promisor.advertise | true
promisor.checkFields | token
promisor.ofALaterGit | all
promisor.quiet | true
promisor.sendFields | token
promisor.storeFields | partialCloneFilter,token
protocol.allow | always | user
protocol.ssh.allow | always
protocol.file.allow | never
protocol.version | 0 | 1
pull.ff | only
pull.octopus | ours
pull.rebase | interactive
pull.twohead | ours
push.autoSetupRemote | true
push.default | nothing | matching
push.followTags | true
push.gpgSign | true | if-asked
push.negotiate | true
push.pushOption | option
push.recurseSubmodules | check | only
push.useForceIfIncludes | true
rebase.backend | apply
rebase.instructionFormat | x
rebase.maxLabelLength | 1
rebase.missingCommitsCheck | error
receive.advertisePushOptions | true
receive.certNonceSeed | x
receive.certNonceSlop | 1
receive.denyCurrentBranch | refuse
receive.denyDeletes | true
receive.denyNonFastForwards | true
receive.fsck.skipList | {d}/skip
receive.hideRefs | refs
receive.keepAlive | 1
receive.maxInputSize | 1
receive.procReceiveRefs | refs
receive.shallowUpdate | false
receive.unpackLimit | 1
reftable.blockSize | 256
reftable.geometricFactor | 2
reftable.lockTimeout | 0 | -1
reftable.restartInterval | 1
remote.nowhere.followRemoteHEAD | always | warn
remote.nowhere.negotiationInclude | refs/none
remote.nowhere.negotiationRestrict | refs/none
remote.nowhere.serverOption | x
remote.origin.fetch | +refs/*:refs/*
remote.origin.mirror | true
remote.origin.partialclonefilter | blob:none
remote.origin.promisor | true | false
remote.origin.proxy | http://127.0.0.1:9
remote.origin.proxyAuthMethod | basic
remote.origin.prune | true
remote.origin.pruneTags | true
remote.origin.push | +refs/*:refs/*
remote.origin.pushurl | ssh://host.invalid/x
remote.origin.receivepack | {d}/evil
remote.origin.skipDefaultUpdate | true
remote.origin.skipFetchAll | true
remote.origin.tagOpt | --tags
remote.origin.uploadpack | {d}/evil
remote.origin.url | ssh://host.invalid/x
remote.origin.vcs | evil
remote.sandbox-1.mirror | true
remote.sandbox-1.partialclonefilter | blob:none
remote.sandbox-1.promisor | true | false
remote.sandbox-1.proxy | http://127.0.0.1:9
remote.sandbox-1.prune | true
remote.sandbox-1.pruneTags | true
remote.sandbox-1.push | +refs/*:refs/*
remote.sandbox-1.pushurl | ssh://host.invalid/x
remote.sandbox-1.receivepack | {d}/evil
remote.sandbox-1.uploadpack | {d}/evil
remote.sandbox-1.vcs | evil
remote.pushDefault | nowhere | sandbox-1
remotes.default | nowhere sandbox-1
repack.cruftDepth | 1
repack.cruftThreads | 1
repack.cruftWindow | 1
repack.cruftWindowMemory | 1
repack.midxNewLayerThreshold | 1
repack.midxSplitFactor | 2
replay.refAction | print
safe.bareRepository | explicit
safe.directory | /nowhere
sendemail.x.smtpServer | {d}/evil
sequence.editor | '{d}/evil'
showBranch.default | main
sideband.allowControlCharacters | true | cursor
sideband.ssh://127.0.0.1.allowControlCharacters | true
sideband.x.allowControlCharacters | true
splitIndex.maxPercentChange | 0 | 100
splitIndex.sharedIndexExpire | now
ssh.variant | plink | simple
status.compareBranches | @{upstream}
status.renameLimit | 1
status.renames | copies
status.showUntrackedFiles | no | all
status.submoduleSummary | true | 1
submodule.active | *
submodule.alternateErrorStrategy | die
submodule.alternateLocation | superproject
submodule.fetchJobs | 9
submodule.propagateBranches | true
submodule.recurse | true
submodule.x.active | true
submodule.x.branch | main
submodule.x.fetchRecurseSubmodules | true
submodule.x.gitdir | {d}
submodule.x.ignore | all
submodule.x.update | checkout
submodule.x.url | ssh://host.invalid/x
tag.gpgSign | true
tag.sort | -refname
tar.umask | 0777
trace2.configParams | *
trace2.destinationDebug | true
trace2.envVars | DAYTONA_API_KEY,DAYTONA_SSH_TOKEN,DAYTONA_SSH_TOKEN_FD,GIT_SSH_COMMAND
trace2.eventBrief | false
trace2.eventNesting | 9
trace2.eventTarget | {d}/trace | true
trace2.maxFiles | 0
trace2.normalBrief | false
trace2.normalTarget | {d}/trace | true
trace2.perfBrief | false
trace2.perfTarget | {d}/trace | 2
trailer.ifexists | replace
trailer.ifmissing | doNothing
trailer.separators | :
trailer.where | start
trailer.x.cmd | {d}/evil
trailer.x.command | {d}/evil
trailer.x.ifexists | replace
trailer.x.ifmissing | add
trailer.x.key | X
trailer.x.where | start
transfer.advertiseSID | true
transfer.bundleURI | true
transfer.credentialsInUrl | die
transfer.hideRefs | refs | !refs
transfer.unpackLimit | 100000
uploadpack.hideRefs | refs
uploadpack.keepAlive | 1
uploadpack.packObjectsHook | {d}/evil
uploadpackfilter.allow | false
uploadpackfilter.tree.maxDepth | 0
uploadpackfilter.tree.allow | true
url.https://evil.invalid/.insteadOf | ssh:
url.https://evil.invalid/.pushInsteadOf | ssh:
user.email | u@example.invalid
user.name | Some User
user.signingKey | none
user.useConfigOnly | true
versionsort.suffix | -rc
web.browser | {d}/evil
worktree.guessRemote | true
worktree.useRelativePaths | true | false
"""

HOOKS = (
    "applypatch-msg",
    "commit-msg",
    "fsmonitor-watchman",
    "p4-changelist",
    "p4-post-changelist",
    "p4-pre-submit",
    "p4-prepare-changelist",
    "post-applypatch",
    "post-checkout",
    "post-commit",
    "post-index-change",
    "post-merge",
    "post-receive",
    "post-rewrite",
    "post-update",
    "pre-applypatch",
    "pre-auto-gc",
    "pre-commit",
    "pre-merge-commit",
    "pre-push",
    "pre-rebase",
    "pre-receive",
    "prepare-commit-msg",
    "proc-receive",
    "push-to-checkout",
    "reference-transaction",
    "sendemail-validate",
    "update",
)
"""githooks(5); since git 2.54 they may be in the configuration."""

# Of the names that the installed git lists, what is not in the table is a boolean, a colour, a
# severity of fsck, or belongs to a program that is not run here.
_FATAL = ("nulInHeader", "unterminatedHeader")
"""fsck's own: they cannot be demoted, and git refuses a configuration that tries."""

UNREAL = ("core.bare", "core.worktree", "core.repositoryFormatVersion", "extensions.")
"""In a repository's own configuration these say what the repository is: another one, for every
git."""


def names() -> list[str]:
    """The names that the installed git lists, placeholders and all."""
    listing = subprocess.run(
        ("git", "help", "--config"),
        capture_output=True,
        text=True,
        check=True,
        stdin=subprocess.DEVNULL,
    )
    # gitweb.remote_heads is listed, too, but git itself takes no underscore in a name; and
    # hasconfig:remote.*.url, which is a condition of includeIf.
    return [
        line
        for line in listing.stdout.splitlines()
        if "." in line and not {" ", "_", ":"} & set(line)
    ]


def explicit(d: str) -> dict[str, tuple[str, str]]:
    rows = [
        [part.strip().replace("{d}", d) for part in line.split(" | ")]
        for line in _TABLE.strip().splitlines()
    ]
    for event in HOOKS:
        rows += [[f"hook.evil-{event}.event", event], [f"hook.evil-{event}.command", f"'{d}/evil'"]]
    rows += [["hook.idle.enabled", "true"], ["hook.idle.parallel", "true"]]
    return {row[0]: (row[1], row[-1]) for row in rows}


def keys(d: str) -> dict[str, tuple[str, str]]:
    """All keys with their values in the two rounds: those of the table, and what else git knows
    of."""
    made = explicit(d)
    lower = {key.lower() for key in made}
    for name in names():
        if "<" in name or "*" in name or name.lower() in lower:
            continue
        made[name] = _generic(name)
    return made


def _generic(name: str) -> tuple[str, str]:
    last = name.rsplit(".", 1)[-1]
    if re.match(r"(fetch\.|receive\.)?fsck\.", name):
        return ("error", "error") if last in _FATAL else ("ignore", "error")
    if name.startswith("color."):
        return ("always", "always") if name.count(".") == 1 else ("red reverse", "red")
    return "true", "false"


def covered(name: str, known: set[str]) -> bool:
    """Whether a listed name, placeholders and all, is one of the (lower-case) keys."""
    pattern = re.compile(
        "".join(
            ".+" if part.startswith(("<", "*")) else re.escape(part)
            for part in re.split(r"(<[^>]+>|\*)", name)
        )
    )
    return any(re.fullmatch(pattern.pattern, key, re.IGNORECASE) for key in known)


def written(chosen: dict[str, str]) -> str:
    """A configuration file with the keys."""
    lines = []
    for key, value in chosen.items():
        section, _, rest = key.partition(".")
        subsection, _, name = rest.rpartition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'[{section} "{subsection}"]' if subsection else f"[{section}]")
        lines.append(f'\t{name} = "{escaped}"')
    return "\n".join(lines) + "\n"
