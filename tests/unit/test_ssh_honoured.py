"""What of ``ssh -G`` goes into the private configuration, as tables."""

import pytest

from git_daytona import ssh

CLIENT = ["/opt/my ssh", "-F", "/proc/1/fd/3%"]
START = "'/opt/my ssh' -F /proc/1/fd/3%%"


@pytest.mark.parametrize(
    ("spec", "command"),
    [
        ("jump", f"{START}  -W '[%h]:%p' -- jump"),
        ("me@jump", f"{START} -l me -W '[%h]:%p' -- jump"),
        ("me@corp@jump:22", f"{START} -l me@corp -p 22 -W '[%h]:%p' -- jump"),
        ("[10.0.0.1]:2222", f"{START} -p 2222 -W '[%h]:%p' -- 10.0.0.1"),
        ("me@[::1]", f"{START} -l me -W '[%h]:%p' -- ::1"),
        ("one,me@two:3,three", f"{START} -J one,me@two:3 -W '[%h]:%p' -- three"),
        ("-oProxyCommand=x", f"{START}  -W '[%h]:%p' -- -oProxyCommand=x"),
        ("a;b@jump", f"{START} -l 'a;b' -W '[%h]:%p' -- jump"),
    ],
)
def test_a_jump_as_a_command(spec, command):
    assert ssh.jump(spec, CLIENT) == command


@pytest.mark.parametrize(
    ("shown", "inherited", "lines"),
    [
        (
            "user me\nproxycommand relay %r %%r %%%r %h",
            False,
            ["proxycommand relay me %%r %%me %h"],
        ),
        ("proxycommand relay %r\nuser 100%", False, ["proxycommand relay 100%%"]),
        ("user me\nproxyjump %r@jump", False, [f"proxycommand {START} -l me -W '[%h]:%p' -- jump"]),
        ("ciphers a,b\nhostkeyalgorithms c\nsendenv *\ninvented yes", False, ["ciphers a,b"]),
        ("revokedhostkeys ~/a b/%h\\x", False, ['revokedhostkeys "~/a b/%h\\\\x"']),
        (
            "userknownhostsfile /a /b\nglobalknownhostsfile /c\nhostkeyalias h\n"
            "knownhostscommand k %r",
            False,
            [],
        ),
        (
            "userknownhostsfile /a b%/c /d\nglobalknownhostsfile none",
            True,
            ['userknownhostsfile "/a b%%/c" "/d"', 'globalknownhostsfile "none"'],
        ),
        (
            "hostkeyalias h\nuser me\nknownhostscommand k %r",
            True,
            ["hostkeyalias h", "knownhostscommand k me"],
        ),
    ],
)
def test_what_is_taken_over(shown, inherited, lines):
    assert ssh.honoured(shown + "\n", CLIENT, inherited=inherited) == lines


def test_the_token_stands_before_everything():
    assert ssh.configuration("Token1", ["ciphers a"]) == "User Token1\nciphers a\n"
    assert ssh.configuration(None, ["ciphers a"]) == "ciphers a\n"
