"""The environment and configuration of our git: nothing of a user's setup changes what it does."""

import os
import re
from collections.abc import Iterable, Mapping, Sequence

# Of GIT_*: where git's programs and the user's configuration files are (ownership exceptions live
# there), and a policy of which protocols may be used, which is the user's to set (case 15).
# Everything else of GIT_* goes: GIT_DIR and friends of a hook that called us, tracing in all its
# forms, GIT_SSH*, askpass, identities.
_KEPT = {f"GIT_{name}" for name in ("EXEC_PATH", "ALLOW_PROTOCOL")} | {
    f"GIT_CONFIG_{name}" for name in ("GLOBAL", "SYSTEM", "NOSYSTEM")
}

# Beats the same keys in any configuration file. Hooks could run for minutes, fail, or belong to a
# stranger; fsmonitor and the like start programs; core.safecrlf is an error for what an edited
# worktree may hold, and a snapshot is no commit of the user's; a temporary index split from the
# worktree's own would let that one's shared part expire; the rest is output. Hooks of git's
# configuration (git 2.54) are ended by their event, whoever named them what.
_LOCAL = """
    core.hooksPath=/dev/null core.fsmonitor=false core.safecrlf=false core.splitIndex=false
    core.quotePath=true core.pager=cat color.ui=false
    advice.detachedHead=false submodule.recurse=false commit.gpgSign=false tag.gpgSign=false
    hook.post-checkout.enabled=false hook.post-index-change.enabled=false
    hook.pre-auto-gc.enabled=false hook.reference-transaction.enabled=false
"""
# For transfers, on top of it: one pack (unpackLimit), whose size can be limited, in place of up to
# a hundred objects each of which can be as large; and what comes, comes from the sandbox itself,
# not from where it points to (uriProtocols, bundleURI, promisor), nor by a program of somebody's
# naming.
_TRANSFER = """
    protocol.version=2 protocol.ext.allow=never core.askPass= credential.helper=
    push.gpgSign=false push.followTags=false push.recurseSubmodules=no push.negotiate=false
    push.pushOption= fetch.recurseSubmodules=false fetch.prune=false fetch.pruneTags=false
    fetch.writeCommitGraph=false fetch.showForcedUpdates=false fetch.fsckObjects=true
    fetch.unpackLimit=1 fetch.uriProtocols= transfer.fsckObjects=true transfer.advertiseSID=false
    transfer.bundleURI=false fetch.bundleURI= promisor.acceptFromServer=
    gc.auto=0 maintenance.auto=false sideband.allowControlCharacters=false
    hook.pre-push.enabled=false
"""
# The rule behind some of that: whatever a key of these sections is called, and in whichever git, it
# may lead a transfer elsewhere, start a program or let the sandbox's words through as they are.
REACHING_OUT = r"(promisor|bundle|hook|sideband)\..*|fetch\.bundle.*"
LOCAL_CONFIG = tuple(_LOCAL.split())
# For git that walks from all refs (a fetch, rev-list --all): one that another session deletes
# meanwhile is passed by. By default git takes a ref that vanishes between listing and reading for a
# damage, and ends with "bad object" (git(1), GIT_REF_PARANOIA).
ALL_REFS = {"GIT_REF_PARANOIA": "0"}
TRANSFER_CONFIG = (*LOCAL_CONFIG, *_TRANSFER.split())


def base(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of the environment for git: no GIT_* but the kept ones, none of ours, C locale."""
    gone = {"LANGUAGE", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE"}
    kept = {
        name: value
        for name, value in (os.environ if environ is None else environ).items()
        if name in _KEPT or not (name.startswith(("DAYTONA_", "GIT_")) or name in gone)
    }
    return kept | {
        "LC_ALL": "C",  # people's logs should be of one language
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_OPTIONAL_LOCKS": "0",
        # off, also where trace2.* in a configuration file says otherwise (git's api-trace2)
        "GIT_TRACE2": "0",
        "GIT_TRACE2_EVENT": "0",
        "GIT_TRACE2_PERF": "0",
    }


def reset(keys: Iterable[str]) -> dict[str, str]:
    """Variables that set each key of REACHING_OUT to nothing, or end the hook that it is about."""
    found = sorted({key for key in keys if re.fullmatch(REACHING_OUT, key, re.DOTALL)})
    pairs = [
        (f"{key.rpartition('.')[0]}.enabled", "false") if key.startswith("hook.") else (key, "")
        for key in found
    ]
    return config_variables(pairs)


def config_variables(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Variables that set each key to its value. (An argument ends a key at its first ``=``.)"""
    result = {"GIT_CONFIG_COUNT": str(len(pairs))} if pairs else {}
    for number, (key, value) in enumerate(pairs):
        result |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return result


def config_arguments(pairs: tuple[str, ...]) -> list[str]:
    """``-c key=value`` for each pair."""
    return [word for pair in pairs for word in ("-c", pair)]


def user_ssh(
    environ: Mapping[str, str], core_ssh_command: str | None, ssh_variant: str | None
) -> dict[str, str]:
    """Tell the wrapper which ssh is the user's own, for other hosts; git's order of precedence."""
    result: dict[str, str] = {}
    if command := environ.get("GIT_SSH_COMMAND") or core_ssh_command:
        result["DAYTONA_SSH_OTHER_COMMAND"] = command
    elif program := environ.get("GIT_SSH"):
        result["DAYTONA_SSH_OTHER_PROGRAM"] = program
    if variant := environ.get("GIT_SSH_VARIANT") or ssh_variant:
        result["DAYTONA_SSH_OTHER_VARIANT"] = variant
    return result
