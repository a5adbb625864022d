# SPDX-License-Identifier: Apache-2.0
"""Writes the SBOM of the packages: package/sbom.py --build build/release --plugin FILE --out build/package

SPDX 2.3 as JSON, of the files that lie there: which Debian packages have the libraries that wheel, tarball and images bring and
that the .deb depends on, and whose headers or static libraries are in our programs; and the plugin for CPUs.
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import re
import subprocess
import sys
import urllib.parse

import elf
import image
import licences
import programs

# What is shipped, by the end of its name; whether it brings the libraries, or needs them.
CHART = ".tgz"  # has templates, and nothing of others
KINDS = {".whl": "CONTAINS", ".tar.gz": "CONTAINS", ".oci.tar": "CONTAINS", ".deb": "DEPENDS_ON"}


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def debian_package(name):
    """The record of an installed Debian package."""
    told = subprocess.run(["dpkg-query", "-W", "-f", "${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n", name],
                          text=True, capture_output=True).stdout.splitlines()
    if not told:
        sys.exit(f"sbom: the Debian package {name} is not here")
    version, architecture, source, source_version = told[0].split("\t")
    quoted = urllib.parse.quote(version, safe="")
    return {
        "name": name, "SPDXID": spdx_id(f"deb-{name}"), "versionInfo": version, "supplier": "Organization: Debian",
        "downloadLocation": f"https://snapshot.debian.org/package/{source}/{urllib.parse.quote(source_version, safe='')}/",
        "filesAnalyzed": False, "licenseConcluded": "NOASSERTION", "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION", "sourceInfo": f"Debian source package {source} {source_version}",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:deb/debian/{name}@{quoted}?arch={architecture}"}],
    }


def shipped_file(path, version):
    return {
        "name": path.name, "SPDXID": spdx_id(path.name), "versionInfo": version, "packageFileName": path.name,
        "supplier": "NOASSERTION", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0", "copyrightText": "NOASSERTION",
        "checksums": [{"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}],
    }


def plugin_wheel(plugin):
    version = image.plugin_version(plugin)
    return {
        "name": "xla-cpu-pjrt", "SPDXID": "SPDXRef-xla-cpu-pjrt", "versionInfo": version,
        "supplier": "Organization: The OpenXLA Authors", "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0", "licenseDeclared": "NOASSERTION", "copyrightText": "Copyright The OpenXLA Authors",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                          "referenceLocator": f"pkg:pypi/xla-cpu-pjrt@{version}"}],
    }


def packages_in(files, build, plugin):
    """File -> the Debian packages that it brings, or needs; and the image that it is, or None."""
    libraries = {}
    for name in (*(f"bin/{program}" for program in programs.PROGRAMS), "lib/libfairway-client.so"):
        libraries |= elf.libraries(build / name)
    linked = {licences.package_of(path) for path in libraries.values()}
    of_image = {name: image.debian_packages(one, build, plugin) for name, one in image.IMAGES.items()}
    kinds = {path: path.name.split("-")[1] for path in files if path.name.endswith(".oci.tar")}
    return {path: (of_image[kinds[path]], image.IMAGES[kinds[path]]) if path in kinds else (linked, None) for path in files}


def document(build, files, version, when, plugin):
    inside = packages_in(files, build, plugin)
    names = set(licences.COMPILED_IN).union(*(packages for packages, _ in inside.values()))
    records = [*(debian_package(name) for name in sorted(names)), plugin_wheel(plugin)]
    headers = {
        "name": "xla-headers", "SPDXID": "SPDXRef-xla-headers", "versionInfo": "of jaxlib 0.8.2 and xla-cpu-pjrt",
        "supplier": "Organization: The OpenXLA Authors", "downloadLocation": "https://github.com/openxla/xla",
        "filesAnalyzed": False, "licenseConcluded": "Apache-2.0", "licenseDeclared": "Apache-2.0",
        "copyrightText": "Copyright The OpenXLA Authors",
    }
    relations = []

    def relate(one, kind, other):
        relations.append({"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other})

    for path in files:
        relate("SPDXRef-DOCUMENT", "DESCRIBES", spdx_id(path.name))
        if "dbgsym" in path.name or path.name.endswith(CHART):
            continue
        kind = next(kind for end, kind in KINDS.items() if path.name.endswith(end))
        packages, shown = inside[path]
        for name in sorted(packages):
            relate(spdx_id(path.name), kind, spdx_id(f"deb-{name}"))
        if shown is not None and shown.plugin:
            relate(spdx_id(path.name), kind, "SPDXRef-xla-cpu-pjrt")
        for name in licences.COMPILED_IN:
            relate(spdx_id(path.name), "STATIC_LINK", spdx_id(f"deb-{name}"))
        relate(spdx_id(path.name), "STATIC_LINK", headers["SPDXID"])
    shipped = [shipped_file(path, version) for path in files]
    digest = hashlib.sha256(json.dumps(shipped, sort_keys=True).encode()).hexdigest()
    created = datetime.datetime.fromtimestamp(when, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"fairway-{version}", "documentNamespace": f"https://fairway.invalid/spdx/fairway-{version}-{digest}",
        "creationInfo": {"created": created, "creators": ["Tool: package/sbom.py"]},
        "packages": [*shipped, *records, headers], "relationships": relations,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--plugin", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    args = parser.parse_args()
    when, out, build = programs.commit_time(), args.out.resolve(), args.build.resolve()
    files = sorted(path for path in out.iterdir() if path.name.endswith((*KINDS, CHART)))
    if not files:
        sys.exit(f"sbom: no package in {out}; ./dev package all makes them first")
    version = programs.version(build)
    target = out / f"fairway-{version}.spdx.json"
    target.write_text(json.dumps(document(build, files, version, when, args.plugin.resolve()), indent=1) + "\n", encoding="utf-8")
    programs.describe(target)


if __name__ == "__main__":
    main()
