"""What is missing, different or strange in the sandbox, beyond flows/ (CASES 49 to 52b)."""

import shutil
import subprocess

from git_daytona import transfer


def test_case_49_the_servers_side_in_any_shell(repo):
    """The gateway hands git's command to whatever shell the image has; one of them takes a * that matches nothing for an error."""
    examples = (("sh",), ("bash",), ("bash", "-O", "failglob"), ("zsh", "-f"))
    for shell in examples:
        for pack in (transfer.UPLOAD_PACK, transfer.RECEIVE_PACK):
            if shutil.which(shell[0]):
                line = f"{pack.replace('-pack', '-pack --advertise-refs')} '{repo.path}'"
                done = subprocess.run((*shell, "-c", line), cwd=repo.path, capture_output=True, timeout=30)
                assert (done.returncode, done.stderr) == (0, b""), shell
                assert repo.git("rev-parse", "HEAD").encode() in done.stdout, shell
