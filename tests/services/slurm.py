"""A real one-node SLURM of one's own: munged, slurmctld and slurmd with their own ports, folder and two fake GPUs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from tests.services.sshd import NoSshd, free_port, listening, program

FOLDER_PREFIX = "potato-slurm-"
# Not under /tmp, which a backend refuses as a shared folder; short, for a unix socket's path has 107 characters.
PARENT = Path("/var/opt")
PATIENCE_S = 20.0
KILL_WAIT_S = 2

CONFIG = """\
ClusterName=potato
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/{task_plugin}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerNode=1500
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ReturnToService=2
JobAcctGatherType=jobacct_gather/linux
AccountingStorageType=accounting_storage/none
MailProg=/bin/true
SchedulerParameters=sched_interval=1,batch_sched_delay=0
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait={kill_wait}
GresTypes=gpu
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=4000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes={host} Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes={host} MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=closed Nodes={host} MaxTime=INFINITE State=DOWN
"""
CGROUPS = Path("/sys/fs/cgroup/memory")


class NoSlurm(Exception):
    """There is no SLURM here, or nobody may start it."""


def _program(name: str) -> str:
    try:
        return program(name)
    except NoSshd as error:
        raise NoSlurm(str(error)) from error


class Slurm:
    """One cluster of one node, which is this machine; its commands are run with `environment`."""

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise NoSlurm("a SLURM that runs jobs of accounts can be started by root alone")
        self.programs = {name: _program(name) for name in ("munged", "slurmctld", "slurmd", "setpriv", "sbatch")}
        _sweep()
        self.node = os.uname().nodename.split(".")[0]
        self.folder = Path(tempfile.mkdtemp(prefix=f"{FOLDER_PREFIX}{os.getpid()}-", dir=PARENT))
        self.folder.chmod(0o755)
        self.shared = self.folder / "shared"  # what login node and compute node both see
        self.shared.mkdir(mode=0o777)
        self.shared.chmod(0o777)
        self.config = self.folder / "slurm.conf"
        self.environment = {**os.environ, "SLURM_CONF": str(self.config)}
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self._configure()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    # Starting.

    def _configure(self) -> None:
        for name in ("munge", "state", "spool", "dev"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(256))
        key.chmod(0o600)
        self.ports = {"control_port": free_port(), "node_port": free_port()}
        self._write_config()
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainRAMSpace=yes\nMinRAMSpace=30\n")
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/dev/nvidia[0-1] Flags=nvidia_gpu_env\n")
        for number in range(2):  # slurmd takes nothing but character devices for GPUs
            device = self.folder / "dev" / f"nvidia{number}"
            try:
                os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(195, number))
            except OSError as error:
                raise NoSlurm(f"no device can be made here: {error.strerror}") from error

    def _write_config(self, task_plugin: str = "none") -> None:
        words = {"folder": self.folder, "host": self.node, "kill_wait": KILL_WAIT_S, "task_plugin": task_plugin}
        self.config.write_text(CONFIG.format(**words, **self.ports))

    def _start(self) -> None:
        munge = self.folder / "munge"
        files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
        self._daemon("munged", "--foreground", "--force", f"--socket={munge / 'socket'}", *files)
        self._wait_for("munged", (munge / "socket").exists)
        self._daemon("slurmctld", "-D", "-i", "-f", str(self.config))
        self._wait_for("slurmctld", lambda: self.run("scontrol", "ping").stdout.find(" is UP") > 0)
        self._start_node()

    def _start_node(self) -> None:
        self._daemon("slurmd", "-D", "-f", str(self.config))
        self._wait_for("slurmd", lambda: listening(self.ports["node_port"]) and self.node_state() == "IDLE")

    def _daemon(self, name: str, *words: str) -> None:
        # It ends with us, also where we are killed.
        argv = [self.programs["setpriv"], "--pdeathsig", "KILL", self.programs[name], *words]
        with (self.folder / f"{name}.out").open("wb") as said:
            self.daemons[name] = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self.environment, cwd=self.folder
            )

    def _wait_for(self, name: str, is_there: object) -> None:
        end = time.monotonic() + PATIENCE_S
        while not is_there():  # type: ignore[operator]
            if self.daemons[name].poll() is not None or time.monotonic() > end:
                said = (self.folder / f"{name}.out").read_text(errors="replace")[-600:]
                raise NoSlurm(f"{name} does not start: {said}")
            time.sleep(0.05)

    # Asking and provoking.

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """Run one of SLURM's commands here, as root."""
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, timeout=60)

    def node_state(self) -> str:
        said = self.run("scontrol", "show", "node", self.node).stdout
        return said.partition("State=")[2].split()[0] if "State=" in said else ""

    def jobs(self) -> dict[str, str]:
        """Job name -> state, of all that are not over."""
        said = self.run("squeue", "--noheader", "--format=%j|%T").stdout
        return dict(line.strip().split("|") for line in said.splitlines())

    def job_id(self, name: str) -> str:
        return self.run("squeue", "--noheader", f"--name={name}", "--format=%i").stdout.strip()

    @contextmanager
    def memory_held(self) -> Iterator[None]:
        """Meanwhile the kernel holds each job to its --mem, as on most clusters. Raises NoSlurm where it cannot."""
        if not _has_memory_cgroups():
            raise NoSlurm(f"the kernel's memory controller (cgroup v1) is not at {CGROUPS}, or not ours")
        self._restart_node("cgroup")
        try:
            yield
        finally:
            self._restart_node("none")

    def _restart_node(self, task_plugin: str) -> None:
        self._write_config(task_plugin)
        self.daemons["slurmd"].kill()
        self.daemons["slurmd"].wait()
        self._start_node()

    def clear(self) -> None:
        """No job is left, and the node takes new ones."""
        self.run("scancel", "--quiet", "--user=root")
        for state in ("resume", "idle"):  # whichever the state admits
            self.run("scontrol", "update", f"nodename={self.node}", f"state={state}")
        ids = self.run("squeue", "--noheader", "--format=%i").stdout.split()
        if ids:
            self.run("scancel", "--quiet", *ids)
        self._wait_for("slurmd", lambda: not self.jobs() and self.node_state() == "IDLE")

    def stop(self) -> None:
        """End its jobs and its daemons, and remove its folder."""
        if "slurmd" in self.daemons:
            with suppress(NoSlurm, subprocess.TimeoutExpired):
                self.clear()
        for name in ("slurmd", "slurmctld", "munged"):
            if name in self.daemons:
                below = psutil.Process(self.daemons[name].pid).children(recursive=True)
                self.daemons[name].kill()
                self.daemons[name].wait()
                for one in below:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def _has_memory_cgroups() -> bool:
    """Whether root may make groups there: in a container it may be read-only."""
    probe = CGROUPS / f"{FOLDER_PREFIX}{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError:
        return False
    return True


def _sweep() -> None:
    """Remove the folders of test processes that were killed; their daemons ended with them."""
    for folder in PARENT.glob(f"{FOLDER_PREFIX}*"):
        pid = folder.name.removeprefix(FOLDER_PREFIX).partition("-")[0]
        if pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)


def cluster() -> Slurm:
    """Raises NoSlurm with the reason."""
    return Slurm()
