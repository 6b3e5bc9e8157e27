"""Child processes that end: each has a limit in time, and what it started ends with it."""
import dataclasses
import json
import os
import select
import signal
import subprocess
import tempfile
import time


@dataclasses.dataclass
class Done:
    code: int  # None: stopped
    out: str
    err: str
    seconds: float

    def reason(self):
        """Why it failed, in a line; nothing where it did not."""
        if self.code == 0:
            return ""
        if self.code is None:
            return f"no end after {self.seconds:.0f} s"
        last = (self.err.strip() or self.out.strip() or "no output").splitlines()[-1]
        return f"signal {-self.code}: {last}" if self.code < 0 else last


def stop(process):
    """Ends a child and what it started. One that hangs in its driver is left behind."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        pass


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def run(command, timeout):
    """Files and no pipes: whoever inherited a pipe could keep it open for ever."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       start_new_session=True)
        except OSError as error:
            return Done(127, "", f"{command[0]}: {error.strerror}", 0)
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            stop(process)
        return Done(code, text_of(out), text_of(err), time.monotonic() - start)


class Worker:
    """A child that answers lines of JSON. One that takes too long or dies is started anew for the
    next question."""

    def __init__(self, command):
        self.command, self.process, self.rest = command, None, b""

    def start(self):
        err = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, bufsize=0,
                                            stdout=subprocess.PIPE, stderr=err,
                                            start_new_session=True)
        except OSError:
            err.close()
            raise
        self.err, self.rest = err, b""

    def close(self):
        """What it wrote to stderr."""
        if not self.process:
            return ""
        stop(self.process)
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None
        with self.err:
            return text_of(self.err)

    def line(self, deadline):
        """The next line, or None when the time is up or the child gone."""
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                return None
            some = os.read(self.process.stdout.fileno(), 1 << 16)
            if not some:
                return None
            self.rest += some
        line, self.rest = self.rest.split(b"\n", 1)
        return line

    def ask(self, question, timeout):
        """The answer, or {"error": ...}."""
        deadline = time.monotonic() + timeout
        try:
            if not self.process:
                self.start()
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            line = self.line(deadline)
            if line is not None:
                return json.loads(line)
        except (OSError, ValueError) as error:
            return {"error": (self.close().strip() or str(error)).splitlines()[-1]}
        said = self.close().strip()
        if time.monotonic() >= deadline:
            return {"error": f"no answer after {timeout:.0f} s"}
        return {"error": (said or "it ended without an answer").splitlines()[-1]}
