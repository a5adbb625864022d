# SPDX-License-Identifier: Apache-2.0
"""`fairway cordon`, `uncordon` and `drain` on real clusters, with JAX clients."""

import json
import re
import signal
import subprocess

import pytest

from cluster import BIN, clean_environment, wait_for

# Prints the islands that it sees, then puts an array on the last device, and does what it is told.
CLIENT = """
import sys
import jax, jax.numpy as jnp

device = jax.devices()[-1]
kept = jax.device_put(jnp.arange(50000.0), device).block_until_ready()
print("ready", len(jax.devices()), len({d.slice_index for d in jax.devices()}), flush=True)
for line in sys.stdin:
    if line == "compute\\n":
        print("is", float((kept * 2)[3]), flush=True)
    elif line == "delete\\n":
        kept.delete()
        print("deleted", flush=True)
    elif line == "put\\n":
        try:
            print("put", float(jax.device_put(jnp.arange(50000.0), device)[3]), flush=True)
        except Exception as error:
            print("refused", " ".join(str(error).split()), flush=True)
"""


def fairway(cluster, *words, check=True):
    return cluster.cli(*words, "--controller", cluster.address, check=check)


def islands(cluster):
    return json.loads(fairway(cluster, "get", "islands", "-o", "json").stdout)["items"]


class Client:
    """A JAX program that is told what to do."""

    def __init__(self, cluster, tmp_path):
        script = tmp_path / "client.py"
        script.write_text(CLIENT)
        self.process = cluster.start_python(script)
        self.ready = self.hear("ready")

    def hear(self, *words):
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith(words):
                return line.strip()
        raise AssertionError("".join(said))

    def tell(self, word, *answers):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear(*answers)

    def end(self):
        said = self.process.communicate(timeout=240)[0]
        assert self.process.returncode == 0, said


def drain(cluster, *words):
    return subprocess.Popen([BIN / "fairway", "drain", *words, "--controller", cluster.address],
                            env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def test_a_session_that_is_opened_after_a_cordon_does_not_see_the_island(new_cluster, tmp_path):
    cluster = new_cluster(2, 2)
    first, last = (island["name"] for island in islands(cluster))
    before = Client(cluster, tmp_path)
    assert before.ready == "ready 4 2"
    assert fairway(cluster, "cordon", last).stdout == f"{last} is cordoned\n"
    assert fairway(cluster, "cordon", last, last).stdout == 2 * f"{last} was cordoned already\n"
    unknown = fairway(cluster, "cordon", "nowhere", first, check=False)
    assert unknown.returncode == 1 and unknown.stdout == f"{first} is cordoned\n"
    assert unknown.stderr == f"fairway cordon: there is no island 'nowhere' (there are {first}, {last})\n"
    assert fairway(cluster, "uncordon", first).stdout == f"{first} takes new sessions\n"
    assert [(island["drained"], island["cordoned_by"]) for island in islands(cluster)] == [
        (False, ""), (False, "the controller's user")]
    since = r"cordoned since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC by the controller's user\n"
    assert re.search(r"\n  takes no new sessions: " + since, fairway(cluster, "status").stdout)
    assert f"\n{last}  up, cordoned  " in fairway(cluster, "get", "islands").stdout
    assert re.search("state: +up, cordoned\ncordoned: +since .* by the controller's user\n",
                     fairway(cluster, "describe", "island", last).stdout)
    after = Client(cluster, tmp_path)
    assert after.ready == "ready 2 1"
    assert before.tell("compute", "is") == "is 6.0" and before.tell("put", "put") == "put 3.0"
    # It stays when the workers come back.
    fairway(cluster, "restart", "w1")
    assert [island["cordoned_by"] != "" for island in islands(cluster)] == [False, True]
    # Without any island a client hears why.
    fairway(cluster, "cordon", first)
    said, _ = cluster.start_python("-c", "import jax; jax.devices()").communicate(timeout=240)
    assert re.search(r"no island takes new sessions: all that are up are cordoned, island \S+ by the controller's user since .* "
                     r"Ask an operator for `fairway uncordon \S+`", said), said
    fairway(cluster, "uncordon", first, last)
    again = Client(cluster, tmp_path)
    assert again.ready == "ready 4 2"
    for client in (before, after, again):
        client.end()


def test_a_drain_says_who_holds_the_island_and_waits_until_nobody_does(new_cluster, tmp_path):
    cluster = new_cluster(2, 2)
    first, last = (island["name"] for island in islands(cluster))
    client = Client(cluster, tmp_path)
    begun = f"{last} was cordoned already; `fairway uncordon {last}` ends that. Nothing is moved: this waits until " \
        "sessions end or give up what they have there. It may be interrupted\n"
    late = fairway(cluster, "drain", last, "--timeout=1ms", check=False)
    assert late.returncode == 4, "which no other failure has"
    assert late.stdout.startswith(begun.replace("was cordoned already", "is cordoned")), late.stdout
    (session,) = json.loads(fairway(cluster, "get", "sessions", "-o", "json").stdout)["items"]
    table = rf"1 session holds {last}:\n  SESSION +TENANT +ARRAYS +BYTES +RUNNING +UNFINISHED\n" \
        rf"  {session['id']} +{session['tenant']} +1 +195\.\d KiB +0 +0\n"
    assert re.search(table + "$", late.stdout), late.stdout
    assert re.fullmatch(
        rf"fairway drain: {last} is not drained after 1ms: session {session['id']} \(tenant {session['tenant']}\) has 1 "
        rf"arrays of 195\.\d KiB and 0 nodes\. It stays cordoned \(`fairway uncordon {last}`\)\n", late.stderr), late.stderr
    # One that is interrupted leaves the island cordoned.
    waits = drain(cluster, last)
    assert waits.stdout.readline() == begun
    waits.send_signal(signal.SIGINT)
    waits.communicate(timeout=120)
    assert waits.returncode == -signal.SIGINT
    assert islands(cluster)[1]["cordoned_by"] and not islands(cluster)[1]["drained"]
    # One whose island is uncordoned ends, and cordons it no more.
    waits = drain(cluster, last)
    assert waits.stdout.readline() == begun
    fairway(cluster, "uncordon", last)
    _, error = waits.communicate(timeout=240)
    assert waits.returncode == 1 and error == (
        f"fairway drain: island {last} is not cordoned any more: somebody uncordoned it (`fairway get events`), or the "
        f"controller has been restarted; `fairway drain {last}` begins anew\n"), error
    assert not islands(cluster)[1].get("cordoned_by")
    fairway(cluster, "cordon", last)
    # What is there goes on until its session gives it up.
    waits = drain(cluster, last)
    assert waits.stdout.readline() == begun
    assert client.tell("compute", "is") == "is 6.0"
    assert waits.poll() is None
    assert client.tell("delete", "deleted") == "deleted"
    said, error = waits.communicate(timeout=240)
    assert waits.returncode == 0 and error == "", error
    assert said.endswith(f"{last} is drained: nobody has anything there, and work that comes to it fails until "
                         f"`fairway uncordon {last}`\n"), said
    assert f"\n{last}  up, drained  " in fairway(cluster, "get", "islands").stdout
    # It can be stopped, and its workers come back to it as they were told.
    assert "island " + last + " is drained: the controller's user cordoned it on " in client.tell("put", "refused")
    fairway(cluster, "restart", "w1")
    assert islands(cluster)[1]["drained"]
    assert fairway(cluster, "drain", last).stdout.startswith(f"{last} is drained: ")
    fairway(cluster, "uncordon", last)
    assert client.tell("put", "put") == "put 3.0"
    client.end()
    # A session that ends gives up what it had.
    fairway(cluster, "drain", first, "--timeout=120s")


@pytest.mark.parametrize("words, error", [
    (["cordon"], "fairway cordon: which island? (`fairway get islands` lists them)\n"),
    (["uncordon"], "fairway uncordon: which island? (`fairway get islands` lists them)\n"),
    (["drain"], "fairway drain: which island? (`fairway get islands` lists them)\n"),
    (["drain", "i0", "--timout=3s"], "fairway drain: unknown flag --timout; did you mean --timeout? (--help lists all flags)\n"),
    (["drain", "i0", "--timeout=3x"], "fairway drain: --timeout: '3x' is not a duration such as 500ms, 10s or 2m\n"),
])
def test_wrong_words_are_one_line(words, error):
    done = subprocess.run([BIN / "fairway", *words], env=clean_environment(), text=True, stdin=subprocess.DEVNULL,
                          capture_output=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)


def test_a_drain_that_cannot_ask_ends_as_other_failures_do_whatever_its_timeout():
    done = subprocess.run([BIN / "fairway", "drain", "i0", "--timeout=1ms", "--controller=127.0.0.1:1"], env=clean_environment(), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False)
    assert done.returncode == 1 and "no controller answers at 127.0.0.1:1" in done.stderr, done.stderr


def test_a_drain_of_an_island_that_nobody_uses_is_over_at_once(new_cluster):
    cluster = new_cluster(2, 1, ["--runtime", "host"])
    name = islands(cluster)[0]["name"]
    assert fairway(cluster, "drain", name).stdout.startswith(f"{name} is drained: ")
    wait_for(lambda: islands(cluster)[0]["drained"], "what status says")
    assert sorted(cluster.metrics().by("fairway_island_cordoned", "island").values()) == [0, 1]
    assert fairway(cluster, "uncordon", name).stdout == f"{name} takes new sessions\n"
    assert fairway(cluster, "uncordon", name).stdout == f"{name} was not cordoned\n"


def test_the_cordon_of_an_island_that_is_forgotten_is_listed_and_can_be_ended(new_cluster):
    cluster = new_cluster(1, 1, ["--runtime", "host"], {"FAIRWAY_FORGET_AFTER": "1s"})
    link = cluster.executors()[0].flag("controller")
    worker = subprocess.Popen(
        [BIN / "fairway-worker", f"--controller={link}", "--name=w9", "--island=other", "--devices=1", "--runtime=host"],
        env=cluster.environment, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: any(island["name"] == "other" and island["up"] for island in islands(cluster)), "the island")
        assert fairway(cluster, "cordon", "other").stdout == "other is cordoned\n"
    finally:
        worker.terminate()
        worker.wait()
    wait_for(lambda: islands(cluster)[-1]["absent"], "the island to be forgotten")
    assert len(islands(cluster)) == 2 and not islands(cluster)[0]["absent"]
    assert re.search(r"\nother +absent, cordoned +- +- ", fairway(cluster, "get", "islands").stdout)
    assert "\nother absent, cordoned since " in fairway(cluster, "status").stdout
    assert re.search("state: +absent, cordoned\n", fairway(cluster, "describe", "island", "other").stdout)
    assert fairway(cluster, "uncordon", "other").stdout == "other takes new sessions\n"
    assert len(islands(cluster)) == 1
    name = islands(cluster)[0]["name"]
    unknown = fairway(cluster, "cordon", "other", check=False)
    assert unknown.stderr == f"fairway cordon: there is no island 'other' (there are {name})\n"
