# SPDX-License-Identifier: Apache-2.0
"""Writes OCI archives: one tar with an image of layers, as the OCI image specification 1.0 has it.

The same files, settings and time give the same bytes: entries are sorted, and have one time.
"""

import dataclasses
import gzip
import hashlib
import io
import json
import pathlib
import tarfile

import programs

ENTRY_TIME = programs.ZIP_BEGINS  # of what is in layers: a layer whose files did not change stays the same layer
_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@dataclasses.dataclass
class Entry:
    """A file (its bytes, or where they are), or a folder (neither), and whose it is."""
    source: bytes | pathlib.Path | None
    mode: int
    owner: int = 0  # user and group

    def size(self):
        if self.source is None:
            return 0
        return len(self.source) if isinstance(self.source, bytes) else self.source.stat().st_size


def with_folders(files):
    """The files, and the folders above them that are not there: root's, which all may enter."""
    above = {str(parent) for name in files for parent in pathlib.PurePosixPath(name).parents} - {"."}
    return {name: Entry(None, 0o755) for name in above} | files


class _Digest:
    """Passes on what is written, and hashes it."""

    def __init__(self, target):
        self._target, self.sha256, self.bytes = target, hashlib.sha256(), 0

    def write(self, data):
        self.sha256.update(data)
        self.bytes += len(data)
        return self._target.write(data)

    def name(self):
        return f"sha256:{self.sha256.hexdigest()}"


def _add(tar, name, entry, when):
    info = tarfile.TarInfo(name)
    info.mtime, info.mode, info.uid, info.gid = when, entry.mode, entry.owner, entry.owner
    if entry.source is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
        return
    info.size = entry.size()
    with io.BytesIO(entry.source) if isinstance(entry.source, bytes) else entry.source.open("rb") as data:
        tar.addfile(info, data)


def _descriptor(media_type, digest, size):
    return {"mediaType": media_type, "digest": digest, "size": size}


class Archive:
    """An image, whose blobs are in the folder `work` until write()."""

    def __init__(self, work):
        self._work, self._layers, self._diff_ids = programs.fresh(work), [], []

    def _json(self, media_type, value):
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(data).hexdigest()
        (self._work / digest).write_bytes(data)
        return _descriptor(media_type, f"sha256:{digest}", len(data))

    def layer(self, files):
        """On top of those before. `files`: name -> Entry; their folders are made."""
        part = self._work / "part"
        with part.open("wb") as raw:
            packed = _Digest(raw)
            with gzip.GzipFile("", "wb", 6, packed, mtime=0) as stream:
                plain = _Digest(stream)
                with tarfile.open(fileobj=plain, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
                    for name, entry in sorted(with_folders(files).items()):
                        _add(tar, name, entry, ENTRY_TIME)
        part.rename(self._work / packed.sha256.hexdigest())
        self._layers.append(_descriptor(_LAYER, packed.name(), packed.bytes))
        self._diff_ids.append(plain.name())

    def write(self, target, name, tag, architecture, settings, created):
        """Writes the archive; `settings`: the member "config" of the image's configuration."""
        config = self._json(_CONFIG, {
            "architecture": architecture, "os": "linux", "created": created, "config": settings,
            "rootfs": {"type": "layers", "diff_ids": self._diff_ids},
            "history": [{"created": created, "created_by": "package/image.py"} for _ in self._layers]})
        manifest = self._json(_MANIFEST, {
            "schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": self._layers})
        # umoci and skopeo know the image by the first name, containerd by the second.
        manifest |= {"platform": {"architecture": architecture, "os": "linux"},
                     "annotations": {"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": f"{name}:{tag}"}}
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": [manifest]}
        files = {f"blobs/sha256/{path.name}": Entry(path, 0o644) for path in self._work.iterdir()}
        files["index.json"] = Entry(json.dumps(index, sort_keys=True).encode(), 0o644)
        files["oci-layout"] = Entry(b'{"imageLayoutVersion":"1.0.0"}', 0o644)
        with tarfile.open(target, "w", format=tarfile.USTAR_FORMAT) as tar:
            for path, entry in sorted(with_folders(files).items()):
                _add(tar, path, entry, ENTRY_TIME)
