# SPDX-License-Identifier: Apache-2.0
"""The Python of the README's tour runs, on a cluster started as the README says, with its output."""

import re

from cluster import ROOT


def test_the_tour_prints_what_it_says(cluster, tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"^python - <<'END'\n(.*?)^END$", text, re.M | re.S)
    assert len(programs) == 1
    promised = re.search(r"print\(.*\)\s+# (.+)$", programs[0], re.M).group(1)
    script = tmp_path / "tour.py"
    script.write_text(programs[0], encoding="utf-8")
    assert cluster.python(script).stdout.strip() == promised
