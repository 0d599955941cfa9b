"""A real sshd of one's own on 127.0.0.1, accounts to log in to, and a client's own keys and configuration."""

from __future__ import annotations

import fcntl
import itertools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from training.backends.connection import Target

# What each variant's configuration says besides the common lines.
VARIANTS: dict[str, tuple[str, ...]] = {
    "default": (),
    "no-stream-forwarding": ("AllowStreamLocalForwarding no",),
    "no-tcp-forwarding": ("AllowTcpForwarding no",),
    "no-forwarding": ("DisableForwarding yes",),
    "one-session": ("MaxSessions 1",),
    "two-sessions": ("MaxSessions 2",),
    "no-forwarding-two-sessions": ("DisableForwarding yes", "MaxSessions 2"),
    "no-forwarding-three-sessions": ("DisableForwarding yes", "MaxSessions 3"),
    "one-login-at-a-time": ("MaxStartups 1:100:1",),
    "banner": ("Banner {folder}/banner",),
    "certificates": ("AuthorizedKeysFile none", "TrustedUserCAKeys {folder}/authorities"),
    "password-only": ("PubkeyAuthentication no", "PasswordAuthentication yes"),
    "key-and-password": ("AuthenticationMethods publickey,password", "PasswordAuthentication yes"),
}
ACCOUNT_PREFIX = "potato-t"
_numbers = itertools.count()  # a test process may have several servers, and there is one list of accounts
FOLDER_PREFIX = "potato-sshd-"
# useradd of two test processes at once: one gets "cannot lock /etc/passwd".
ACCOUNTS_LOCK = Path("/tmp/potato-test-accounts.lock")


class NoSshd(Exception):
    """There is no sshd here, or nobody may start it."""


def program(name: str) -> str:
    """The path of a program, /usr/sbin included; raises NoSshd."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if found is None:
        raise NoSshd(f"{name} is not on this machine")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def keygen(path: Path, passphrase: str = "", kind: str = "ed25519") -> Path:
    """Make a key pair at `path` and `path.pub`."""
    argv = [program("ssh-keygen"), "-q", "-t", kind, "-N", passphrase, "-C", "potato-test", "-f", str(path)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
    return path


@contextmanager
def _accounts_locked() -> Iterator[None]:
    with ACCOUNTS_LOCK.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _of_the_dead(name: str, prefix: str) -> bool:
    """Was it made by a test process that is no more?"""
    pid = name.removeprefix(prefix).partition("-")[0]
    return name.startswith(prefix) and pid.isdigit() and not psutil.pid_exists(int(pid))


def _sweep() -> None:
    """Remove the accounts and folders of test processes that were killed."""
    for entry in pwd.getpwall():
        if _of_the_dead(entry.pw_name, ACCOUNT_PREFIX):
            subprocess.run([program("userdel"), "-f", entry.pw_name], capture_output=True)
    for folder in Path("/tmp").glob(f"{FOLDER_PREFIX}*"):
        if _of_the_dead(folder.name, FOLDER_PREFIX):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Account:
    """An account over there, with a HOME of its own."""

    name: str
    uid: int
    home: Path
    shell: str

    def write(self, name: str, text: str) -> Path:
        """Write a file of the account's, below its HOME."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for made in (path, *path.parents):
            if made == self.home:
                break
            os.chown(made, self.uid, -1)
        return path

    def clean(self) -> None:
        """End its processes and empty its HOME."""
        self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700, exist_ok=True)
        os.chown(self.home, self.uid, -1)

    def processes(self) -> list[psutil.Process]:
        """What runs under this account now."""
        return [one for one in psutil.process_iter(["uids"]) if one.info["uids"] and one.info["uids"].real == self.uid]

    def kill(self) -> None:
        for one in self.processes():
            with suppress(psutil.NoSuchProcess):  # it ended by itself meanwhile
                one.send_signal(signal.SIGCONT)
                one.kill()


@dataclass
class Client:
    """The keys, known hosts and configuration of somebody here: what ~/.ssh is to an account."""

    server: Sshd
    home: Path
    key: Path = field(init=False)
    known_hosts: Path = field(init=False)
    config: Path = field(init=False)

    def __post_init__(self) -> None:
        folder = self.home / ".ssh"
        folder.mkdir(mode=0o700, parents=True)
        self.key = folder / "id_ed25519"
        shutil.copy(self.server.user_key, self.key)
        self.key.chmod(0o600)
        self.known_hosts = folder / "known_hosts"
        self.known_hosts.touch()
        self.config = folder / "config"
        self.configure()

    def configure(self, *lines: str, identity: bool = True) -> None:
        """Write the configuration file: `lines` first, then the lines that keep the real ~/.ssh out of it."""
        common = [f"UserKnownHostsFile {self.known_hosts}", "GlobalKnownHostsFile /dev/null", "IdentitiesOnly yes"]
        common += [f"IdentityFile {self.key}"] if identity else []
        self.config.write_text("\n".join([*lines, "Host *", *("  " + line for line in common)]) + "\n")
        self.config.chmod(0o600)

    def know(self, port: int, key: Path | None = None, name: str = "127.0.0.1") -> None:
        """Add the host key of a port here to the known hosts; another key than the server's own where one is given."""
        public = (key or self.server.host_key).with_suffix(".pub").read_text().split()
        with self.known_hosts.open("a") as file:
            file.write(f"[{name}]:{port} {public[0]} {public[1]}\n")

    def target(
        self, variant: str = "default", account: Account | None = None, port: int = 0, known: bool = True
    ) -> Target:
        """The place to log in to; `port` stands for a relay before the server."""
        port = port or self.server.port(variant)
        if known and f"[127.0.0.1]:{port} " not in self.known_hosts.read_text():
            self.know(port)
        return Target("127.0.0.1", (account or self.server.account()).name, port)


class Sshd:
    """One daemon per variant, each started when it is first asked for; all of them know the same accounts and key."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise NoSshd("an sshd that others log in to can be started by root alone")
        self.program = program("sshd")
        program("useradd")
        # Accounts walk through it, so it is not private; what must be is 0600 by itself.
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir="/tmp"))
        self.folder.chmod(0o755)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        self.host_key = keygen(self.folder / "host_ed25519")
        self.user_key = keygen(self.folder / "user_ed25519")
        self.authorized = self.folder / "authorized_keys"
        self.authorize(self.user_key)
        self.daemons: dict[str, tuple[subprocess.Popen[bytes], int]] = {}
        self.accounts: dict[str, Account] = {}
        with _accounts_locked():
            _sweep()

    def authorize(self, key: Path) -> None:
        """Let a key in, to every account."""
        with self.authorized.open("a") as file:
            file.write(key.with_suffix(".pub").read_text())
        self.authorized.chmod(0o644)

    def port(self, variant: str = "default") -> int:
        """The port of a variant, its daemon listening."""
        if variant not in self.daemons:
            self.daemons[variant] = self._start(variant)
        return self.daemons[variant][1]

    def _start(self, variant: str) -> tuple[subprocess.Popen[bytes], int]:
        log = self.log(variant)
        for _ in range(5):  # a free port may be taken by another test process before sshd binds it
            port = free_port()
            config = self.folder / f"{variant}.conf"
            config.write_text("\n".join(self._config(port, variant)) + "\n")
            # It ends with us, also where we are killed.
            argv = [program("setpriv"), "--pdeathsig", "TERM", self.program, "-D", "-f", str(config), "-E", str(log)]
            daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
            while daemon.poll() is None:
                if listening(port):
                    return daemon, port
                time.sleep(0.01)
        raise NoSshd(f"sshd does not start: {log.read_text()[-500:] if log.exists() else 'no word from it'}")

    def _config(self, port: int, variant: str) -> Sequence[str]:
        return (
            # What a variant says comes first: of a keyword, sshd takes the first value.
            *(line.format(folder=self.folder) for line in VARIANTS[variant]),
            f"Port {port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.host_key}",
            f"PidFile {self.folder / variant}.pid",
            f"AuthorizedKeysFile {self.authorized}",
            "StrictModes no",
            "UsePAM no",
            "UseDNS no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "PermitRootLogin no",
            # Of this one alone, it takes the last value.
            *(() if any(line.startswith("MaxStartups") for line in VARIANTS[variant]) else ("MaxStartups 100",)),
            "Subsystem sftp internal-sftp",
            "LogLevel VERBOSE",
        )

    def log(self, variant: str = "default") -> Path:
        """What the variant's daemon wrote."""
        return self.folder / f"{variant}.log"

    def account(self, shell: str = "/bin/bash") -> Account:
        """The account with this login shell; made when it is first asked for."""
        if shell not in self.accounts:
            self.accounts[shell] = self._make_account(shell)
        return self.accounts[shell]

    def _make_account(self, shell: str) -> Account:
        name = f"{ACCOUNT_PREFIX}{os.getpid()}-{next(_numbers)}"
        home = self.folder / f"home-{name}"
        # "*" and not useradd's "!": without PAM, sshd lets nobody in to an account that is locked.
        argv = [program("useradd"), "-M", "-N", "-g", "nogroup", "-d", str(home), "-s", shell, "-p", "*", name]
        with _accounts_locked():
            done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode:
            raise NoSshd(f"no account can be made here: {done.stderr.strip()}")
        account = Account(name, pwd.getpwnam(name).pw_uid, home, shell)
        account.clean()
        return account

    def sessions(self, variant: str = "default") -> list[psutil.Process]:
        """The processes of sshd that serve connections now, the daemon itself and people's commands not among them."""
        if variant not in self.daemons:
            return []
        below = psutil.Process(self.daemons[variant][0].pid).children(recursive=True)
        return [one for one in below if one.is_running() and one.name().startswith("sshd")]

    def kill_sessions(self, variant: str = "default") -> None:
        """`kill -9` of what serves the connections of now; the daemon goes on."""
        for one in self.sessions(variant):
            one.kill()

    def stop(self) -> None:
        """End the daemons and their sessions, and remove the accounts and all files."""
        for variant, (daemon, _) in self.daemons.items():
            self.kill_sessions(variant)
            daemon.kill()
            daemon.wait()
        for account in self.accounts.values():
            account.kill()
            with _accounts_locked():
                subprocess.run([program("userdel"), "-f", account.name], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def server() -> Sshd:
    """Raises NoSshd with the reason."""
    program("ssh-keygen")
    return Sshd()
