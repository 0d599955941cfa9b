"""Our own source as it travels to a host: the folder training/agent, its hash, and its archive."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import zipfile
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import training


@dataclass(frozen=True)
class Code:
    """Files by their names below the folder that holds `training`; the same files have the same hash."""

    files: tuple[tuple[str, bytes], ...]

    @classmethod
    def here(cls) -> Code:
        """What this server itself runs."""
        root = Path(training.__file__).resolve().parent
        found = [root / "__init__.py", *(root / "agent").rglob("*.py")]
        return cls(
            tuple(sorted((f"training/{file.relative_to(root).as_posix()}", file.read_bytes()) for file in found))
        )

    @cached_property
    def hash(self) -> str:
        """sha256 over name, length and bytes of every file in order, as training/agent/install.py has it; 32 hex."""
        digest = hashlib.sha256()
        for name, content in self.files:
            digest.update(b"%s\n%d\n" % (name.encode(), len(content)) + content)
        return digest.hexdigest()[:32]

    @cached_property
    def archive(self) -> bytes:
        """A tar.gz of all of it."""
        packed = io.BytesIO()
        with gzip.GzipFile("", "wb", 6, packed, mtime=0) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
            for name, content in self.files:
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o644
                tar.addfile(member, io.BytesIO(content))
        return packed.getvalue()

    @cached_property
    def importable(self) -> bytes:
        """A zip of all of it, from which Python imports without unpacking."""
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, content in self.files:
                zipped.writestr(zipfile.ZipInfo(name), content)
        return packed.getvalue()
