"""Parts: child processes that end when told to, say why if they end by themselves, and leave nothing behind.

A part is a session of its own, so that Ctrl-C in a terminal reaches only the parent, which stops parts in order. A part
does not outlive its parent, even one killed with SIGKILL: a watcher inside the part's process group reads from a pipe
that the parent holds open, and when the pipe ends it kills the group, and with it whatever the part has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tailrace.errors import PartDied

GRACE = 15.0
_TAIL = 15
# Detaches the watcher, which reads the pipe as its standard input, then becomes the command. The watcher starts a shell
# anew, because its environment would have the secrets of the command, and its command line the whole of this.
_WATCHED = """
exec 3<&0 </dev/null
( exec env -i /bin/sh -c 'read -r _; kill -KILL 0' <&3 3<&- >/dev/null 2>&1 & )
exec 3<&-
exec "$@"
"""


class Part:
    """One child process; stdout and stderr go to the end of its log file. It has our umask unless another is given."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        *,
        environment: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        may_finish: bool = False,
        umask: int = -1,
    ) -> None:
        self.name = name
        self.log = log
        self._may_finish = may_finish
        self._stopped = False
        log.parent.mkdir(parents=True, exist_ok=True)
        watched, self._lifeline = os.pipe()
        try:
            with log.open("ab") as output:
                self._log_start = output.tell()
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _WATCHED, name, *command],
                    stdin=watched,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=None if environment is None else dict(environment),
                    cwd=cwd,
                    start_new_session=True,
                    umask=umask,
                )
        except BaseException:
            os.close(self._lifeline)
            raise
        finally:
            os.close(watched)

    @property
    def pid(self) -> int:
        """The process id, which is also that of its session and process group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has not ended."""
        return not self._ended()

    def check(self) -> None:
        """Raise PartDied if the process has ended by itself; a part that may finish may end with 0."""
        if self._stopped or not self._ended():
            return
        code = self._bury()
        if not (self._may_finish and code == 0):
            raise PartDied(
                f"{self.name} {_ending(code)}; the end of its log:\n{self.tail()}\nthe whole log: {self.log}"
            )

    def wait(self, ready: Callable[[], bool], timeout: float, interval: float = 0.02) -> None:
        """Return when `ready` says so. Raise PartDied if the process ends first or is not ready in time."""
        deadline = time.monotonic() + timeout
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise PartDied(
                    f"{self.name} was not ready after {timeout:.0f} s; the end of its log:\n{self.tail()}\n"
                    f"the whole log: {self.log}"
                )
            time.sleep(interval)

    def tail(self, lines: int = _TAIL) -> str:
        with self.log.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(max(self._log_start, end - 64 * 1024))
            last = file.read().decode(errors="replace").splitlines()[-lines:]
        return "\n".join("    " + line for line in last) or "    (empty)"

    def terminate(self) -> None:
        """Ask the process to end, without waiting."""
        self._stopped = True
        if not self._ended():
            self._process.send_signal(signal.SIGTERM)

    def stop(self, grace: float = GRACE) -> None:
        """Ask the process to end, and kill it after the grace. Then kill whatever it left in its group."""
        self.terminate()
        deadline = time.monotonic() + grace
        while not self._ended() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._bury()

    def kill(self) -> None:
        """Kill the process and its group at once, as a crash would."""
        self._stopped = True
        self._bury()

    def signal_kill(self) -> None:
        """Send SIGKILL to the group without waiting; safe in a signal handler."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _ended(self) -> bool:
        """Whether the process has ended, without reaping it: so its id still names its group."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _bury(self) -> int:
        """Kill the group, reap the process, and wait a little for the rest of the group to be gone."""
        if self._process.returncode is None:
            self.signal_kill()
            self._process.wait()
            os.close(self._lifeline)
            deadline = time.monotonic() + 2
            while _group_runs(self.pid) and time.monotonic() < deadline:
                time.sleep(0.01)
        return self._process.returncode


def _group_runs(group: int) -> bool:
    """Whether a process of the group runs. One that has ended and waits to be reaped does not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                return True
    return False


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
