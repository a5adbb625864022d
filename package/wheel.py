# SPDX-License-Identifier: Apache-2.0
"""Makes the wheel: package/wheel.py --build build/release --out build/package

Out of a finished build (`./dev package wheel` sees to that) and client/python. What is inside, and why
two builds of a commit give the same bytes: docs/design/0047-the-wheel.md.
"""

import argparse
import base64
import hashlib
import pathlib
import re
import shutil
import sys
import time
import zipfile

import elf
import licences
import programs
from programs import PROGRAMS, ROOT, fresh, run

MAX_BYTES = 30_000_000
SDK_LIBRARY = "libfairway-client.so"
# Those that need no more than the extra "examples" brings.
EXAMPLES = ("digits_data_parallel", "digits_pipeline", "digits_program", "hybrid_mesh_data_parallel",
            "shard_map_attention")
NATIVE = "fairway/_native"  # the prefix: bin/, lib/, include/


def install_programs(build, prefix):
    """bin/, include/ and lib/ of the build, stripped."""
    shipped = programs.install(build, prefix)
    run("cmake", "--install", build, "--prefix", prefix, "--component", "Unspecified")
    library = prefix / "lib" / SDK_LIBRARY
    real = library.resolve().name
    library.unlink()
    # For those who link by -lfairway-client: a wheel has no links, and this does the same.
    library.write_text(f"INPUT({real})\n")
    shipped.append(prefix / "lib" / real)
    for path in shipped:
        programs.strip(path)
    return shipped


def bundle_libraries(build, prefix, shipped):
    """Copies what the shipped files need, but for the C library; returns name -> Debian's path."""
    private = prefix / "lib" / "fairway"
    private.mkdir(parents=True)
    found = {}
    for name in [f"bin/{program}" for program in PROGRAMS] + [f"lib/{SDK_LIBRARY}"]:
        found |= elf.libraries(build / name)
    for name, path in found.items():
        shutil.copyfile(path, private / name)
        run("strip", "--strip-unneeded", private / name)
    for path in [*shipped, *(private / name for name in found)]:
        outside = [need for need in elf.needed(path) if need not in found and not elf.is_libc(need)]
        if outside:
            sys.exit(f"wheel: {path.name} needs {', '.join(outside)}, which nothing brings")
    return found


def python_tree(work):
    """The pure-Python wheel of client/python with the examples, unpacked."""
    source, wheels, tree = work / "source", work / "wheels", work / "tree"
    skip = shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "client" / "python", source, ignore=skip)
    for name in EXAMPLES:
        shutil.copy(ROOT / "examples" / f"{name}.py", source / "fairway" / "examples")
    run(sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps",
        "--no-build-isolation", "--no-index", "-w", wheels, source)
    (wheel,) = wheels.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tree)
    (info,) = tree.glob("*.dist-info")
    return tree, info


def check_versions(build, info):
    """CMake's, pyproject's and the package's numbers must be one; returns it."""
    version = programs.version(build)
    text = (ROOT / "client" / "python" / "fairway" / "__init__.py").read_text(encoding="utf-8")
    told = {"fairway.__version__": re.search(r'__version__ = "(.*)"', text).group(1),
            "the pure-Python wheel": info.name.removesuffix(".dist-info").removeprefix("fairway-")}
    for what, number in told.items():
        if number != version:
            sys.exit(f"wheel: {what} says version {number}, the command {version}")
    return version


def write_wheel(tree, info, target, when):
    """Packs `tree`, with a RECORD; the same files and `when` give the same bytes."""
    stamp = time.gmtime(when)[:6]
    record = info / "RECORD"
    record.unlink(missing_ok=True)
    names = sorted(str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file())
    inside = [name for name in names if not name.startswith(info.name)]
    lines = []
    with zipfile.ZipFile(target, "w") as file:

        def add(name, data):
            entry = zipfile.ZipInfo(name, stamp)
            mode = 0o755 if name.startswith(f"{NATIVE}/bin/") else 0o644
            entry.external_attr = (0o100000 | mode) << 16
            entry.create_system = 3
            file.writestr(entry, data, zipfile.ZIP_DEFLATED, 6)

        # The description last, as its standard recommends.
        for name in inside + [name for name in names if name.startswith(info.name)]:
            data = (tree / name).read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data)
        lines.append(f"{info.name}/RECORD,,\n")
        add(f"{info.name}/RECORD", "".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    args.out = args.out.resolve()
    when = programs.commit_time()
    work = fresh(args.out / "work")
    build = args.build.resolve()
    tree, info = python_tree(work)
    version = check_versions(build, info)
    prefix = tree / NATIVE
    shipped = install_programs(build, prefix)
    libraries = bundle_libraries(build, prefix, shipped)
    licences.write(info / "licenses", libraries)
    shutil.copy(ROOT / "LICENSE", info / "licenses" / "LICENSE")

    floor = max(elf.glibc_floor(p) for p in [*shipped, *(prefix / "lib" / "fairway").iterdir()])
    tag = f"py3-none-manylinux_{floor[0]}_{floor[1]}_x86_64"
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: fairway (package/wheel.py)\nRoot-Is-Purelib: false\n"
        f"Tag: {tag}\n")
    programs.check_no_paths(tree)
    target = args.out / f"fairway-{version}-{tag}.whl"
    for old in args.out.glob("*.whl"):
        old.unlink()
    write_wheel(tree, info, target, when)
    shutil.rmtree(work)
    size = target.stat().st_size
    if size > MAX_BYTES:
        sys.exit(f"wheel: {target.name} has {size:,} bytes, more than {MAX_BYTES:,}")
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    print(f"{target} ({size / 1e6:.1f} MB, {len(libraries)} libraries, sha256 {digest[:16]}...)")


if __name__ == "__main__":
    main()
