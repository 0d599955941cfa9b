"""Send a folder's files through standard output: `python -c SOURCE MARK FOLDER MOST_BYTES`; says first what will come.

The stream: a newline, MARK, a newline; one line `N_ENTRIES MANIFEST_BYTES`; the manifest; the files' contents in its
order with nothing between them. An entry of the manifest is `KIND SIZE NAME`, ended by NUL; KIND is d (directory),
f (file), x (file that may be executed), or why a thing stays behind: l (above MOST_BYTES, 0 for no limit), o (no plain
file: a link, a socket), u (unreadable).
"""

import os
import stat
import sys

CHUNK = 1 << 18
ENOUGH = 1 << 16  # smaller files are sent together


def entries(top, most):
    # type: (bytes, int) -> list[tuple[bytes, int, bytes]]
    """(kind, size, name below top) of everything below `top`; a directory before what is in it, links not followed."""
    found = []
    for folder, folders, files in os.walk(top, onerror=_raise):
        folders.sort()
        for name in sorted(folders + files):
            path = os.path.join(folder, name)
            kind, size = _kind(path, most)
            found.append((kind, size, os.path.relpath(path, top)))
    return found


def _raise(error):
    # type: (OSError) -> None
    raise error


def _kind(path, most):
    # type: (bytes, int) -> tuple[bytes, int]
    about = os.lstat(path)
    if stat.S_ISDIR(about.st_mode):
        return b"d", 0
    if not stat.S_ISREG(about.st_mode):
        return b"o", 0
    if most and about.st_size > most:
        return b"l", about.st_size
    if not os.access(path, os.R_OK):
        return b"u", about.st_size
    return (b"x" if about.st_mode & stat.S_IXUSR else b"f"), about.st_size


def send(top, found, out):
    # type: (bytes, list[tuple[bytes, int, bytes]], int) -> None
    """Write the contents of the files to the descriptor `out`."""
    waiting = bytearray()
    for kind, size, name in found:
        if kind not in (b"f", b"x"):
            continue
        source = os.open(os.path.join(top, name), os.O_RDONLY | os.O_NOFOLLOW)
        try:
            if size > ENOUGH:
                _write(out, waiting)
                waiting = bytearray()
                _copy(source, size, out)
            else:
                waiting += _exactly(source, size)
                if len(waiting) >= CHUNK:
                    _write(out, waiting)
                    waiting = bytearray()
        finally:
            os.close(source)
    _write(out, waiting)


def _copy(source, size, out):
    # type: (int, int, int) -> None
    sent = _sendfile(source, size, out)
    os.lseek(source, sent, os.SEEK_SET)
    while sent < size:
        data = os.read(source, min(CHUNK, size - sent))
        if not data:
            raise EOFError("a file became shorter while it was copied")
        _write(out, data)
        sent += len(data)


def _sendfile(source, size, out):
    # type: (int, int, int) -> int
    """How many bytes the system copied by itself; not every system and file can."""
    sent = 0
    try:
        while sent < size:
            n = os.sendfile(out, source, sent, min(1 << 30, size - sent))
            if n == 0:
                break
            sent += n
    except BrokenPipeError:
        raise
    except (OSError, AttributeError):
        pass
    return sent


def _exactly(source, size):
    # type: (int, int) -> bytes
    data = b""
    while len(data) < size:
        more = os.read(source, size - len(data))
        if not more:
            raise EOFError("a file became shorter while it was copied")
        data += more
    return data


def _write(out, data):
    # type: (int, bytes | bytearray) -> None
    left = memoryview(data)
    while left:
        left = left[os.write(out, left) :]


def main(mark, folder, most):
    # type: (str, str, str) -> int
    top = os.fsencode(folder)
    try:
        found = entries(top, int(most))
        manifest = b"".join(b"%s %d %s\0" % entry for entry in found)
        _write(1, b"\n%s\n%d %d\n" % (mark.encode(), len(found), len(manifest)) + manifest)
        send(top, found, 1)
    except (OSError, EOFError) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
