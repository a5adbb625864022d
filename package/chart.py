# SPDX-License-Identifier: Apache-2.0
"""Packs the Helm chart: package/chart.py --out build/package

As `helm package` does, without helm: the files of deploy/helm/fairway below fairway/, and what is a link there is a file here. The
same commit gives the same bytes, which helm's do not.
"""

import argparse
import pathlib
import re

import programs
import tarball
from programs import ROOT

CHART = ROOT / "deploy" / "helm" / "fairway"


def contents():
    """Name -> (bytes, mode)."""
    out = {str(path.relative_to(CHART)): (path.read_bytes(), 0o644) for path in CHART.rglob("*") if path.is_file()}
    out["LICENSE"] = (ROOT / "LICENSE").read_bytes(), 0o644
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    out = parser.parse_args().out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    files = contents()
    version = re.search(rb"^version: (\S+)$", files["Chart.yaml"][0], re.MULTILINE)[1].decode()
    for old in out.glob("fairway-*.tgz"):
        old.unlink()
    target = out / f"fairway-{version}.tgz"
    tarball.write(target, "fairway", files, programs.commit_time())
    programs.describe(target)


if __name__ == "__main__":
    main()
