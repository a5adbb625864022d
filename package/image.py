# SPDX-License-Identifier: Apache-2.0
"""Makes container images: package/image.py --build build/release --plugin FILE --out build/package

OCI archives of the controller and the worker, out of a finished build (`./dev package image` sees to that) and of files of the
Debian packages that are installed here. What is inside, and why: docs/design/0081-images.md.
"""

import argparse
import dataclasses
import datetime
import os
import pathlib
import shutil
import sys

import elf
import licences
import oci
import programs
from programs import ROOT, run

USER = 65532  # the one that images without a root user have in common; no Debian gives it to anybody
HOME = "var/lib/fairway"
LIBRARIES = "usr/lib/x86_64-linux-gnu"  # where Debian's dynamic linker looks without a cache
LOADER = "lib64/ld-linux-x86-64.so.2"  # what programs name
PLUGIN = "usr/lib/fairway/xla_cpu_pjrt.so"
AUTHORITIES = pathlib.Path("/usr/share/ca-certificates/mozilla")
# Beside what images need by their programs: whose certificates they trust.
AUTHORITIES_PACKAGE = "ca-certificates"
ACCOUNTS = {
    "etc/passwd": f"root:x:0:0:root:/root:/usr/sbin/nologin\nfairway:x:{USER}:{USER}:Fairway:/{HOME}:/usr/sbin/nologin\n",
    "etc/group": f"root:x:0:\nfairway:x:{USER}:\n",
}
HEAD = """\
Here are, beside Fairway itself (LICENSE), files of Debian packages as Debian built them, and code of the headers and static
libraries of some more packages. The copyright file of each package is in the folder debian/, and the licences that these
files name by reference are in common-licenses/. The source of each package, in the version that is named here, is at
https://snapshot.debian.org/ and from Debian's mirrors.

The headers of XLA's PJRT and FFI interfaces, copyright The OpenXLA Authors, are used under the Apache License 2.0 (LICENSE).

"""
PLUGIN_HEAD = """\
xla_cpu_pjrt.so, copyright The OpenXLA Authors, is the file of the wheel xla-cpu-pjrt {version}, under the Apache License 2.0
(LICENSE). The wheel brings no licence file. XLA's own is at https://github.com/openxla/xla/blob/main/LICENSE

"""


@dataclasses.dataclass(frozen=True)
class Image:
    """What one image has. `most_bytes`: of all its files, unpacked."""
    program: str
    title: str
    environment: dict
    ports: tuple
    plugin: bool
    most_bytes: int

    def programs(self):
        return (self.program, "fairway")


# Settings of the environment count before those of a settings file (docs/settings.md).
IMAGES = {
    "controller": Image("fairway-controller", "Fairway controller", {"FAIRWAY_SPOOL_DIRECTORY": f"/{HOME}"},
                        (29000, 29001, 29002, 29003), False, 60_000_000),
    "worker": Image("fairway-worker", "Fairway worker, with the plugin for CPUs", {"FAIRWAY_PJRT_PLUGIN": f"/{PLUGIN}"},
                    (), True, 400_000_000),
}


def needed_libraries(image, build, plugin):
    """Name -> path of each shared library that the image's programs need, the C library and the dynamic linker among them."""
    files = [build / "bin" / name for name in image.programs()] + ([plugin] if image.plugin else [])
    found = {}
    for path in files:
        found |= elf.libraries(path, with_libc=True)
    return found


def debian_packages(image, build, plugin):
    """The names of the packages that the image has files of."""
    return {licences.package_of(path) for path in needed_libraries(image, build, plugin).values()} | {AUTHORITIES_PACKAGE}


def check_unchanged(packages, paths):
    """The files must be those of the packages: dpkg has their sums."""
    changed = {os.path.realpath(line.split()[-1]) for line in run("dpkg", "--verify", *sorted(packages)).splitlines()}
    for path in paths:
        if os.path.realpath(path) in changed:
            sys.exit(f"image: {path} is not as its Debian package has it; `apt-get install --reinstall` brings it back")


def system_layer(image, build, plugin):
    """What programs need of a system: accounts, the data's folder, certificates, libraries."""
    libraries = needed_libraries(image, build, plugin)
    authorities = sorted(AUTHORITIES.glob("*.crt"))
    check_unchanged(debian_packages(image, build, plugin), [*libraries.values(), *authorities])
    files = {name: oci.Entry(text.encode(), 0o644) for name, text in ACCOUNTS.items()}
    files |= {HOME: oci.Entry(None, 0o700, USER), "tmp": oci.Entry(None, 0o1777)}
    # What this machine itself trusts may be more than Debian's.
    files["etc/ssl/certs/ca-certificates.crt"] = oci.Entry(b"".join(path.read_bytes() for path in authorities), 0o644)
    for name, path in libraries.items():
        place = LOADER if name == pathlib.Path(LOADER).name else f"{LIBRARIES}/{name}"
        files[place] = oci.Entry(pathlib.Path(path), 0o755 if place == LOADER else 0o644)
    return files


def program_layer(image, build, plugin, work):
    """The programs, and the licences of all that the image has."""
    tree = programs.fresh(work)
    shipped = programs.install(build, tree / "usr")
    files = {}
    for path in shipped:
        programs.strip(path)
        if path.name in image.programs():
            files[f"usr/bin/{path.name}"] = oci.Entry(path, 0o755)
    head = HEAD + (PLUGIN_HEAD.format(version=plugin_version(plugin)) if image.plugin else "")
    doc = tree / "usr" / "share" / "doc" / "fairway"
    sources = needed_libraries(image, build, plugin) | {"ca-certificates.crt": sorted(AUTHORITIES.glob("*.crt"))[0]}
    licences.write(doc / "third-party", sources, head)
    shutil.copy(ROOT / "LICENSE", doc / "LICENSE")
    programs.check_no_paths(tree)
    return files | {str(path.relative_to(tree)): oci.Entry(path, 0o644) for path in doc.rglob("*") if path.is_file()}


def plugin_version(plugin):
    """Of the wheel that brought the plugin."""
    found = list(plugin.parents[2].glob("xla_cpu_pjrt-*.dist-info"))
    if len(found) != 1:
        sys.exit(f"image: {plugin} is not in a Python environment that has the wheel xla-cpu-pjrt; --plugin names its library there")
    return found[0].name.removesuffix(".dist-info").partition("-")[2]


def labels(image, version):
    """Those of the OCI specification that are known: the revision in a checkout, the source if whoever packs names it."""
    out = {"title": image.title, "version": version, "licenses": "Apache-2.0", "vendor": "The Fairway authors"}
    if source := os.environ.get("FAIRWAY_SOURCE_URL"):
        out["source"] = source
    if (ROOT / ".git").exists():
        out["revision"] = run("git", "-c", "safe.directory=*", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=40",
                              "--exclude=*").strip()
    return {f"org.opencontainers.image.{key}": value for key, value in out.items()}


def settings(image, version):
    """How a runtime starts the image. The root may be read-only, and no capability is needed."""
    environment = {"PATH": "/usr/bin"} | image.environment
    out = {
        "User": f"{USER}:{USER}", "Entrypoint": [f"/usr/bin/{image.program}"], "WorkingDir": f"/{HOME}",
        "Env": [f"{name}={value}" for name, value in sorted(environment.items())], "Volumes": {f"/{HOME}": {}},
        "StopSignal": "SIGTERM", "Labels": labels(image, version),
    }
    if image.ports:
        out["ExposedPorts"] = {f"{port}/tcp": {} for port in image.ports}
    return out


def make(name, build, plugin, out, when):
    image, work = IMAGES[name], out / "work-image"
    version = programs.version(build)
    layers = [system_layer(image, build, plugin)]
    if image.plugin:
        layers.append({PLUGIN: oci.Entry(plugin, 0o755)})
    layers.append(program_layer(image, build, plugin, out / "work-image-programs"))
    size = sum(entry.size() for layer in layers for entry in layer.values())
    if size > image.most_bytes:
        sys.exit(f"image: the {name}'s files have {size:,} bytes, more than {image.most_bytes:,}")
    archive = oci.Archive(work)
    for layer in layers:
        archive.layer(layer)
    target = out / f"fairway-{name}-{version}.oci.tar"
    for old in out.glob(f"fairway-{name}-*.oci.tar"):
        old.unlink()
    created = datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    archive.write(target, f"localhost/fairway-{name}", version, run("dpkg", "--print-architecture").strip(),
                  settings(image, version), created)
    programs.describe(target)
    print(f"  unpacked: {size / 1e6:.1f} MB in {sum(len(layer) for layer in layers)} files")
    for folder in (work, out / "work-image-programs"):
        shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    when, out = programs.commit_time(), args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    for name in IMAGES:
        make(name, args.build.resolve(), args.plugin.resolve(), out, when)


if __name__ == "__main__":
    main()
