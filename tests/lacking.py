"""`import tests.lacking` before anything of ours: this process then lacks what Windows lacks.

With LACKING=macos in the environment, what macOS lacks. The standard library asks `sys.platform`,
which cannot be another's here, so it takes its own before. Packages of others ask for what is
there, or for `sys.platform`, and were written for all three.
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
LINUX_ALONE = {
    os: """pipe2 sched_setscheduler sched_getaffinity sched_setaffinity sched_param memfd_create
        eventfd pidfd_open fdatasync posix_fallocate posix_fadvise""",
    time: "pthread_getcpuclockid CLOCK_BOOTTIME",
    signal: "sigtimedwait sigwaitinfo pidfd_send_signal",
    socket: """AF_NETLINK SO_PEERCRED SO_PASSCRED SCM_CREDENTIALS MSG_CMSG_CLOEXEC SOCK_CLOEXEC
        SOCK_NONBLOCK TCP_DEFER_ACCEPT TCP_USER_TIMEOUT TCP_KEEPIDLE""",
    select: "epoll",
}
UNIX_ALONE = {
    os: """register_at_fork fork forkpty getuid geteuid getgid getegid getgroups getpgid killpg
        setsid mkfifo chown lchown fchown fchmod pread pwrite statvfs fstatvfs sysconf uname nice
        getloadavg ttyname openpty sched_yield posix_spawn sendfile O_DIRECTORY O_NOFOLLOW
        O_CLOEXEC O_NOCTTY O_NONBLOCK O_SYNC O_DSYNC WNOHANG""",
    time: """clock_gettime clock_gettime_ns clock_settime tzset CLOCK_REALTIME CLOCK_MONOTONIC
        CLOCK_MONOTONIC_RAW CLOCK_THREAD_CPUTIME_ID""",
    signal: """SIGKILL SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGALRM SIGPIPE SIGCONT SIGSTOP
        SIGTSTP SIGXFSZ SIGXCPU SIGTTIN SIGTTOU SIGWINCH pthread_sigmask pthread_kill setitimer
        sigwait alarm pause siginterrupt""",
    socket: """AF_UNIX SO_REUSEPORT SCM_RIGHTS MSG_DONTWAIT MSG_NOSIGNAL SOCK_SEQPACKET send_fds
        recv_fds""",
    select: "poll",
}
IS_MACOS = os.environ.get("LACKING") == "macos"
for _name in ("getpass", "shutil", "subprocess", "tempfile"):
    importlib.import_module(_name)


def _pair(*_: object) -> tuple[socket.socket, socket.socket]:
    """Return what `socket.socketpair` is on Windows: two ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        one = socket.create_connection(listening.getsockname())
        return one, listening.accept()[0]


assert asyncio
assert multiprocessing  # they take theirs now
if not IS_MACOS:
    socket.socketpair = _pair  # type: ignore[assignment]
    for _name in MODULES:
        sys.modules[_name] = None  # type: ignore[assignment]  # importing it is an ImportError
for _names in (LINUX_ALONE,) if IS_MACOS else (LINUX_ALONE, UNIX_ALONE):
    for _module, _words in _names.items():
        for _name in _words.split():
            if hasattr(_module, _name):
                delattr(_module, _name)
