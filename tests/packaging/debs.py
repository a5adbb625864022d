# SPDX-License-Identifier: Apache-2.0
"""What tests of the .deb share: the page that says how to use it, another version of it, a program to run."""

import re
import shutil
import subprocess

import bare

HERE = bare.ROOT / "build" / "package"
DOUBLE = """
name: "double"
slices { name: "here" devices: 1 }
computations {
  name: "double" devices: 1
  kernels {
    name: "double"
    parameters { dtype: 11 global_dims: [4] }
    steps { kernel: "scale" operands: [0] factor: 2 }
    results { value: 1 }
  }
  parameters { dtype: 11 dims: [4] }
  results { dtype: 11 dims: [4] }
}
graphs {
  nodes { name: "x" argument { type { array { dtype: 11 dims: [4] } } } }
  nodes { name: "y" compute { inputs { node: 0 } } }
  results { node: 1 }
}
"""


def tell(*words, **keywords):
    done = subprocess.run(list(map(str, words)), text=True, capture_output=True, **keywords)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands_in_the_page(heading, name="install.md"):
    """Those of the blocks below a heading of docs/install.md, or of another page, without their comments."""
    page = (bare.ROOT / "docs" / name).read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [[re.sub(r"\s+#.*", "", line) for line in block.splitlines() if line.strip()]
            for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL)]


def joining(lines, told, flags):
    """The page's lines for a worker's host, with what `fairway token create` told in the place of `fairway join ...`, and more flags."""
    joins, secret = re.search(r"^(fairway join .*) && .*\n((?:.*\n)+?END)$", told, re.MULTILINE).groups()
    for line in lines:
        if line.startswith("fairway join"):
            line = re.sub(r"--to \S+", re.search(r"--to \S+", line)[0], joins).replace("fairway join", f"fairway join {flags}") + f"\n{secret}"
        yield line


def upgrade_of(deb, folder, version="99.0-1"):
    """Another version, in `folder`: the same files, but for a line more in the default settings of the worker. Returns its path."""
    tell("dpkg-deb", "-R", deb, folder / "tree")
    control = folder / "tree/DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.MULTILINE))
    with (folder / "tree/etc/fairway/worker.toml").open("a") as file:
        file.write(f"\n# A line of version {version}.\n")
    made = folder / f"fairway_{version}_amd64.deb"
    tell("dpkg-deb", "--root-owner-group", "-Znone", "--build", folder / "tree", made)
    shutil.rmtree(folder / "tree")
    return made
