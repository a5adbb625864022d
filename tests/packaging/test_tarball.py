# SPDX-License-Identifier: Apache-2.0
"""The tarball: unpacked anywhere on a bare Debian without Python or libraries of ours, and moved."""

import shutil
import tarfile

import bare
import debs


def test_it_runs_wherever_it_is_unpacked(tmp_path):
    (archive,) = debs.HERE.glob("fairway-*.tar.gz")
    folder = bare.ROOT / "build" / "tarball-root"
    shutil.rmtree(folder, ignore_errors=True)
    with bare.Bare("bookworm", folder) as system:
        shutil.copy(archive, system.path / "root")
        (system.path / "root/double.txtpb").write_text(debs.DOUBLE)
        for place in ("/opt", "/srv/some where"):
            there = f"'{place}/{archive.name.partition('-linux')[0]}/bin'"
            made = system.run(f"mkdir -p '{place}' && tar -xf {archive.name} -C '{place}' && "
                              f"{there}/fairway up --runtime host --detach")
            assert made.code == 0, made
            ran = system.run(f"{there}/fairway run double.txtpb --arg x=1.5")
            assert ran.out == "y  f32[4]  [3, 3, 3, 3]\n", ran
            assert system.run(f"{there}/fairway down").code == 0
            assert system.run(f"rm -r '{place}'").code == 0


def test_it_has_the_programs_the_sdk_units_and_licences_of_root():
    (archive,) = debs.HERE.glob("fairway-*.tar.gz")
    with tarfile.open(archive) as tar:
        entries = tar.getmembers()
    top = entries[0].name
    assert {(entry.uid, entry.gid, entry.uname, entry.mode & 0o7022) for entry in entries} == {(0, 0, "root", 0)}
    names = {entry.name.removeprefix(f"{top}/") for entry in entries}
    assert {"bin/fairway", "bin/fairway-controller", "bin/fairway-worker", "include/fairway/fairway.h",
            "lib/cmake/Fairway/FairwayConfig.cmake", "licenses/THIRD_PARTY.txt", "licenses/LICENSE",
            "share/fairway/systemd/fairway-worker.service", "share/fairway/settings/worker.toml"} <= names
    assert len({entry.mtime for entry in entries}) == 1
