# SPDX-License-Identifier: Apache-2.0
"""`fairway get` and `fairway describe` against a real cluster, and what it says to wrong words."""

import json
import os
import pty
import re
import select
import signal
import subprocess

import pytest

from cluster import BIN, clean_environment, wait_for


def run(*words):
    return subprocess.run([str(BIN / "fairway"), *words], env=clean_environment(), text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, timeout=240, check=False)


def get(cluster, *words):
    return cluster.cli("get", *words, "--controller", cluster.address).stdout


def items(cluster, *words):
    listing = json.loads(get(cluster, *words, "-o", "json"))
    assert list(listing) == ["kind", "items", "left_out"] and listing["left_out"] == 0
    return listing["items"]


def rows(text):
    """The cells of a table, by the names of its columns."""
    header, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"(?<!\S)\S", header)]
    cells = [[line[begin:end].strip() for begin, end in zip(starts, [*starts[1:], None])]
             for line in [header, *lines]]
    return [dict(zip(cells[0], line)) for line in cells[1:]]


def steady(workers):
    """What two looks at a worker have in common: each heartbeat takes another time."""
    return [{key: value for key, value in worker.items() if key != "round_trip_us"} for worker in workers]


def test_islands_workers_and_devices_are_listed_with_what_status_says(cluster):
    status = json.loads(cluster.cli("status", "-o", "json", "--controller", cluster.address).stdout)
    islands = rows(get(cluster, "islands"))
    assert [row["NAME"] for row in islands] == [island["name"] for island in status["islands"]]
    assert [(row["STATE"], row["WORKERS"], row["DEVICES"]) for row in islands] == [("up", "1/1", "2")] * 2
    workers = rows(get(cluster, "workers", "-o", "wide"))
    assert [(row["NAME"], row["ISLAND"], row["SUPERVISOR"]) for row in workers] == [
        (executor["worker"], executor["island"], "connected") for executor in status["executors"]]
    devices = rows(get(cluster, "devices"))
    assert [row["NAME"] for row in devices] == ["w0/0", "w0/1", "w1/0", "w1/1"]
    assert [item["name"] for item in items(cluster, "islands")] == [row["NAME"] for row in islands]
    assert [item["incarnation"] for item in items(cluster, "workers")] == [
        executor["incarnation"] for executor in status["executors"]]
    assert [(item["worker"], item["local_ordinal"], item["memory_used"]) for item in items(cluster, "devices")] == [
        ("w0", 0, 0), ("w0", 1, 0), ("w1", 0, 0), ("w1", 1, 0)]
    # A word for one of them does as well.
    assert get(cluster, "device") == get(cluster, "devices")


def test_an_island_and_a_worker_are_described(cluster):
    def describe(*words):
        return cluster.cli("describe", *words, "--controller", cluster.address).stdout

    island = get(cluster, "islands").splitlines()[1].split()[0]
    text = describe("island", island)
    assert re.match(rf"name: +{island}\nstate: +up\n", text)
    assert "\nworkers:\n  NAME " in text and "\n  w0 " in text and "\n  w0/1 " in text and "\n  w1" not in text
    told = json.loads(describe("island", island, "-o", "json"))
    assert told["item"] == items(cluster, "islands")[0] and steady(told["workers"]) == steady(items(cluster, "workers")[:1])
    assert told["devices"] == items(cluster, "devices")[:2] and told["relays"] == []
    text = describe("worker", "w1")
    assert "\nruntime: " in text and " pjrt\n" in text and "\n  w1/0 " in text and "w0" not in text
    assert re.search(r"\ndata port: +127\.0\.0\.1:\d+\n", text) and re.search(r"\nlost before: +never\n", text)
    assert re.match(r"kind: worker\nitem:\n  id: \d+\n  worker: w1\n", describe("worker", "w1", "-o", "yaml"))
    unknown = cluster.cli("describe", "worker", "w00", "--controller", cluster.address, check=False)
    assert unknown.returncode == 1 and unknown.stdout == ""
    assert unknown.stderr == "fairway describe: no worker 'w00'; did you mean w0? (there are w0, w1)\n"


CLIENT = """
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def double(x):
    return x * 2

first, last = jax.devices()[0], jax.devices()[-1]
kept = [jax.device_put(jnp.arange(50000.0), first)]
kept.append(jax.device_put(kept[0], last))
kept.append(double(kept[1]).block_until_ready())
gone = jax.device_put(kept[0], last).block_until_ready()  # nothing of it is under way any more
gone.delete()
print("ready", flush=True)
input()
"""


@pytest.fixture
def client(cluster, tmp_path):
    """A JAX program that holds three arrays, on both islands, and a compiled function."""
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    process = cluster.start_python(script)
    for line in process.stdout:
        if line == "ready\n":
            break
    yield process
    process.communicate("\n", timeout=240)
    assert process.returncode == 0


def test_what_a_session_has_is_listed_and_described(cluster, client):
    (session,) = items(cluster, "sessions")
    number = str(session["id"])
    assert (session["state"], session["devices"], session["nodes_unfinished"]) == ("idle", 4, 0)
    assert session["device_memory"] >= 3 * 200000 and session["record_memory"] > 0
    assert rows(get(cluster, "sessions"))[0]["ID"] == number
    arrays = items(cluster, "arrays")
    assert len(arrays) == session["arrays"] and {array["session"] for array in arrays} == {session["id"]}
    large = [(array["type"], array["state"], array["islands"], array["shards"], array["bytes"])
             for array in arrays if array["bytes"] == 200000]
    islands = [island["name"] for island in items(cluster, "islands")]
    assert sorted(large) == sorted([("f32[50000]", "ready", [island], 1, 200000)
                                    for island in (islands[0], islands[1], islands[1])])
    programs = items(cluster, "programs", "--session", number)
    assert [program["kind"] for program in programs if program["name"] == "jit_double"] == ["computation"]
    assert len(programs) == session["computations"] + session["programs"]
    assert get(cluster, "transfers") == "no transfers\n" and get(cluster, "nodes") == "no nodes\n"
    some = json.loads(get(cluster, "arrays", "--limit=1", "-o", "json"))
    assert len(some["items"]) == 1 and some["left_out"] == len(arrays) - 1 > 0
    assert get(cluster, "arrays", "--limit=1").endswith(f"\n{len(arrays) - 1} more arrays are left out\n")
    assert get(cluster, "arrays", "--session", str(session["id"] + 1)) == "no arrays\n"
    def described():
        return json.loads(cluster.cli("describe", "session", number, "-o", "json", "--controller", cluster.address).stdout)

    # What the controller keeps of it may still shrink, as when frees have come to the executors.
    wait_for(lambda: described()["item"] == items(cluster, "sessions")[0], "both to say the same")
    told = described()
    assert told["arrays"] == arrays and told["programs"] == programs and told["nodes"] == []
    text = cluster.cli("describe", "session", number, "--controller", cluster.address).stdout
    assert re.match(rf"id: +{number}\n", text) and "\nprograms:\n" in text and "jit_double" in text
    for unknown in ("12345678", "no-number"):
        done = cluster.cli("describe", "session", unknown, "--controller", cluster.address, check=False)
        assert done.returncode == 1
        assert done.stderr == f"fairway describe: no session '{unknown}' (there is {number})\n"


def test_what_has_not_ended_says_what_it_waits_for(new_cluster, tmp_path):
    cluster = new_cluster(2, 2)
    script = tmp_path / "client.py"
    script.write_text(CLIENT.replace("input()", "input()\nprint(np.asarray(jax.device_put(double(kept[2]), first))[1])"))
    process = cluster.start_python(script)
    for line in process.stdout:
        if line == "ready\n":
            break
    for executor in cluster.executors():
        executor.signal(signal.SIGSTOP)
    process.stdin.write("\n")
    process.stdin.flush()
    wait_for(lambda: any(row["KIND"] == "fetch" for row in rows(get(cluster, "nodes"))), "the fetch")
    nodes = items(cluster, "nodes")
    islands = [island["name"] for island in items(cluster, "islands")]
    (launch,) = [node for node in nodes if node["kind"] == "launch"]
    assert (launch["state"], launch["island"], launch["name"], launch["waits_for"]) == (
        "launched", islands[1], "jit_double", "worker w1")
    move, fetch = items(cluster, "transfers")
    assert (move["kind"], move["from"], move["island"], move["state"]) == ("move", [islands[1]], islands[0], "prepared")
    assert move["bytes"] >= 200000 and move["waits_for"] == f"node {launch['id']}"
    assert (fetch["kind"], fetch["bytes"], fetch["waits_for"]) == ("fetch", 200000, f"node {move['id']}")
    assert [row["TO"] for row in rows(get(cluster, "transfers"))] == [islands[0], "client"]
    (session,) = rows(get(cluster, "sessions"))
    assert session["STATE"] == "working" and session["NODES"] == str(len(nodes))
    for executor in cluster.executors():
        executor.signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0 and said.endswith("4.0\n"), said
    wait_for(lambda: get(cluster, "nodes") == "no nodes\n", "the end of all")


def test_yaml_says_the_same_as_json(cluster):
    lines = get(cluster, "devices", "-o", "yaml").splitlines()
    assert lines[0] == "kind: devices" and lines[-1] == "left_out: 0"
    said = [dict(line[4:].split(": ") for line in lines[2 + 10 * i:12 + 10 * i]) for i in range(4)]
    assert [device["name"] for device in said] == ["w0/0", "w0/1", "w1/0", "w1/1"]
    for device, item in zip(said, items(cluster, "devices"), strict=True):
        assert {key: value.strip('"') for key, value in device.items()} == {
            key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in item.items()}


@pytest.mark.parametrize("words, error", [
    (["get"], "fairway get: which kind? (islands, workers, devices, sessions, arrays, programs, transfers, nodes, events)"),
    (["get", "iland"], "fairway get: no kind 'iland'; did you mean islands? (there are islands, workers, devices"),
    (["get", "islands", "-o", "jsn"],
     "fairway get: no --output 'jsn'; did you mean json? (there are text, wide, json, yaml)"),
    (["get", "islands", "--session=1"], "fairway get: islands are not of a session; leave out --session"),
    (["get", "arrays", "--limit=-1"], "fairway get: --session and --limit must be 0 or more"),
    (["get", "islands", "--watch", "--every=1ms"], "fairway get: --every must be at least 100ms, not 1ms"),
    (["describe"], "fairway describe: which kind? (island, worker, session, device, array, program, transfer, node, event)"),
    (["describe", "wroker", "w0"], "fairway describe: no kind 'wroker'; did you mean worker? (there are island, worker"),
    (["describe", "worker"], "fairway describe: which worker? (`fairway get workers` lists them)"),
    (["describe", "worker", "w0", "-o", "wide"],
     "fairway describe: no --output 'wide' (there are text, json, yaml)"),
    (["get", "islands", "--contoller=x"], "fairway get: unknown flag --contoller; did you mean --controller?"),
])
def test_wrong_words_are_one_line_that_names_the_near_one(words, error):
    done = run(*words)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert done.stderr.startswith(error), done.stderr


def test_without_a_controller_it_says_so():
    done = run("get", "islands", "--controller=127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("fairway get: no controller answers at 127.0.0.1:1 ") and done.stderr.count("\n") == 1


class Watching:
    """`fairway get KIND --watch`; what it shows, as it comes."""

    def __init__(self, cluster, *words, terminal=False):
        self.shown = b""
        self.fd, end = pty.openpty() if terminal else os.pipe()
        self.process = subprocess.Popen(
            [str(BIN / "fairway"), "get", *words, "--watch", "--every=100ms", "--controller", cluster.address],
            env=clean_environment(), stdin=subprocess.DEVNULL, stdout=end, stderr=subprocess.PIPE, text=True)
        os.close(end)

    def wait(self, seen, what):
        """Reads until seen(all that it has shown)."""
        def read():
            while select.select([self.fd], [], [], 0.1)[0]:
                more = os.read(self.fd, 65536)
                if not more:
                    break
                self.shown += more
            return seen(self.shown.decode())

        return wait_for(read, what)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(120) == -signal.SIGINT
        assert self.process.stderr.read() == ""
        os.close(self.fd)


def test_watch_shows_the_list_again_only_when_it_has_changed(new_cluster):
    cluster = new_cluster(1, 2, ["--runtime", "host"])
    text = Watching(cluster, "islands", "-o", "wide")
    lines = Watching(cluster, "workers", "-o", "json")
    yaml = Watching(cluster, "islands", "-o", "yaml")
    terminal = Watching(cluster, "islands", "-o", "wide", terminal=True)

    def incarnations():
        return [json.loads(line)["items"][0]["incarnation"] for line in lines.shown.decode().splitlines()]

    text.wait(lambda shown: shown.count("\n\n") == 1, "the first table")
    first = cluster.cli("get", "islands", "-o", "wide", "--controller", cluster.address).stdout
    assert text.shown.decode() == first + "\n"
    cluster.cli("restart", "w0", "--controller", cluster.address)
    # It may have been down for less than the 100 ms between two looks, but its epoch is another one.
    epoch = rows(first)[0]["EPOCH"]
    text.wait(lambda shown: shown.endswith("\n\n") and rows(shown.split("\n\n")[-2])[0] == {
        **rows(first)[0], "EPOCH": str(int(epoch) + 1)}, "the island that is back")
    lines.wait(lambda shown: shown.endswith("\n") and len(set(incarnations())) == 2, "the next incarnation")
    yaml.wait(lambda shown: f"epoch: {epoch}\n" in shown and f"epoch: {int(epoch) + 1}\n" in shown, "two documents")
    terminal.wait(lambda shown: shown.count("\x1b[H\x1b[2J") > 1, "a table drawn anew")
    tables = text.shown.decode().split("\n\n")[:-1]
    assert all(one != other for one, other in zip(tables, tables[1:])), tables
    assert yaml.shown.startswith(b"---\nkind: islands\n")
    for watching in (lines, yaml, terminal):
        watching.interrupt()
    cluster.down()
    assert text.process.wait(120) == 1
    assert text.process.stderr.read().startswith("fairway get: ")
    os.close(text.fd)
