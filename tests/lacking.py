"""`import tests.lacking` before anything of ours: this process then lacks what Windows lacks.

The standard library asks `sys.platform`, which cannot be another's here, so it takes its own
before. Packages of others ask for what is there, or for `sys.platform`, and were written for both.
"""

import asyncio
import importlib
import multiprocessing
import os
import select
import signal
import socket
import sys
import time

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
NAMES = {
    os: """register_at_fork fork forkpty getuid geteuid getgid getegid getgroups getpgid killpg
        setsid mkfifo chown lchown fchown fchmod pread pwrite statvfs fstatvfs sysconf uname nice
        getloadavg pipe2 ttyname openpty sched_yield sched_setscheduler sched_getaffinity
        sched_setaffinity sched_param memfd_create eventfd pidfd_open posix_spawn fdatasync
        posix_fallocate posix_fadvise sendfile O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NOCTTY O_NONBLOCK
        O_SYNC O_DSYNC WNOHANG""",
    time: """clock_gettime clock_gettime_ns clock_settime tzset pthread_getcpuclockid CLOCK_REALTIME
        CLOCK_MONOTONIC CLOCK_MONOTONIC_RAW CLOCK_BOOTTIME CLOCK_THREAD_CPUTIME_ID""",
    signal: """SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGALRM SIGPIPE SIGCONT SIGSTOP
        SIGTSTP SIGXFSZ SIGXCPU SIGTTIN SIGTTOU SIGWINCH pthread_sigmask pthread_kill setitimer
        sigwait sigtimedwait sigwaitinfo pidfd_send_signal alarm pause siginterrupt""",
    socket: """AF_UNIX AF_NETLINK SO_PEERCRED SO_PASSCRED SO_REUSEPORT SCM_RIGHTS SCM_CREDENTIALS
        MSG_DONTWAIT MSG_NOSIGNAL MSG_CMSG_CLOEXEC SOCK_CLOEXEC SOCK_NONBLOCK SOCK_SEQPACKET
        TCP_DEFER_ACCEPT TCP_USER_TIMEOUT send_fds recv_fds""",
    select: "epoll poll",
}
for _name in ("getpass", "shutil", "subprocess", "tempfile"):
    importlib.import_module(_name)


def _pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """Return what `socket.socketpair` is on Windows: two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        return one, listening.accept()[0]


socket.socketpair = _pair  # type: ignore[assignment]
assert asyncio
assert multiprocessing  # they take theirs now
for _name in MODULES:
    sys.modules[_name] = None  # type: ignore[assignment]  # importing it is an ImportError
for _module, _names in NAMES.items():
    for _name in _names.split():
        if hasattr(_module, _name):
            delattr(_module, _name)
