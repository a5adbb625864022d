# SPDX-License-Identifier: Apache-2.0
"""`fairway get events`: what has happened to a real cluster."""

import json
import os
import re
import select
import signal
import subprocess

from cluster import BIN, EXAMPLES, clean_environment, wait_for


def fairway(cluster, *words):
    return cluster.cli(*map(str, words), "--controller", cluster.address).stdout


def events(cluster, *words):
    listing = json.loads(fairway(cluster, "get", "events", "-o", "json", *words))
    assert list(listing) == ["kind", "items", "left_out"] and listing["kind"] == "events"
    return listing["items"]


def having(cluster, reason, what, count=1):
    """The event of that reason, once it has happened so often."""
    def find():
        found = [event for event in events(cluster) if event["reason"] == reason and what in (event["object"], "")]
        return found and found[0]["count"] >= count and found[0]
    return wait_for(find, f"{reason} of {what}")


def test_what_happens_to_islands_and_sessions_is_listed_and_counted(new_cluster):
    cluster = new_cluster(2, 2, ["--runtime", "host"])
    first, last = sorted({worker.flag("island") for worker in cluster.executors()})
    up = having(cluster, "IslandUp", f"island {first}")
    assert (up["severity"], up["text"], up["tenant"], up["count"]) == ("normal", "it is up: 1 workers", "", 1)
    for times in (1, 2):
        fairway(cluster, "restart", "w0")
        lost = having(cluster, "ExecutorLost", "worker w0", times)
        having(cluster, "IslandLost", f"island {first}", times)
        having(cluster, "IslandBack", f"island {first}", times)
    assert lost["severity"] == "warning" and lost["first_ms"] < lost["last_ms"]
    assert lost["text"].startswith("its executor was lost: ") and "\n" not in lost["text"]
    assert "`fairway restart`" in lost["text"]
    fairway(cluster, "run", EXAMPLES / "programs" / "two_stages.txtpb", "--arg=x=1.5")
    ended = having(cluster, "SessionEnded", "")
    assert [(event["reason"], event["text"], event["tenant"]) for event in events(cluster, "--session", str(ended["session"]))] == [
        ("SessionOpened", "it was opened by a native client", ended["tenant"]), ("SessionEnded", "it has ended", ended["tenant"])]
    assert ended["object"] == f"session {ended['session']}" and ended["tenant"]
    fairway(cluster, "cordon", last)
    fairway(cluster, "drain", last)
    said = [(event["reason"], event["text"]) for event in events(cluster) if event["object"] == f"island {last}"]
    assert said == [("IslandUp", "it is up: 1 workers"),
                    ("IslandCordoned", "it takes no new sessions: cordoned by the controller's user"),
                    ("IslandDrained", "nobody has anything there: drained by the controller's user")]
    ids = [event["id"] for event in events(cluster)]
    assert ids == sorted(ids)
    # The latest ones are shown.
    text = fairway(cluster, "get", "events", "--limit=1")
    assert re.match(r"LAST +SEVERITY +REASON +OBJECT +COUNT +TEXT\n\d{4}-.* UTC +normal +IslandDrained +"
                    rf"island {last} +1 +nobody has anything there: .*\n{len(ids) - 1} more events are left out\n$", text), text


def test_a_worker_that_is_refused_is_an_event(new_cluster):
    cluster = new_cluster(1, 1, ["--runtime", "host"])
    link = cluster.executors()[0].flag("controller")
    worker = subprocess.Popen(
        [BIN / "fairway-worker", f"--controller={link}", "--name=w0", "--island=elsewhere", "--devices=1", "--runtime=host"],
        env=cluster.environment, stderr=subprocess.DEVNULL)
    try:
        refused = having(cluster, "WorkerRefused", "host 127.0.0.1")
    finally:
        worker.terminate()
        worker.wait()
    assert refused["severity"] == "warning"
    assert refused["text"].startswith("a worker was refused: worker 'w0' is already connected from host "), refused


def test_an_executor_that_is_stopped_and_goes_on_is_told(new_cluster):
    cluster = new_cluster(1, 1, ["--runtime", "host"])
    (executor,) = cluster.executors()
    executor.signal(signal.SIGSTOP)
    assert having(cluster, "ExecutorStalled", "worker w0")["severity"] == "warning"
    executor.signal(signal.SIGCONT)
    assert having(cluster, "ExecutorRuns", "worker w0")["severity"] == "normal"
    assert not any(event["reason"] == "ExecutorLost" for event in events(cluster))


def test_watch_shows_events_as_they_come(new_cluster):
    cluster = new_cluster(1, 1, ["--runtime", "host"])
    having(cluster, "IslandUp", "")
    watching = {}
    for output in ("text", "json"):
        watching[output] = subprocess.Popen(
            [BIN / "fairway", "get", "events", "--watch", "--every=100ms", "-o", output, "--controller", cluster.address],
            env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    shown = dict.fromkeys(watching, "")

    def read(output, part):
        def seen():
            pipe = watching[output].stdout
            while select.select([pipe], [], [], 0.1)[0]:
                shown[output] += os.read(pipe.fileno(), 65536).decode()
                if part in shown[output]:
                    return True
            return part in shown[output]
        wait_for(seen, f"{part} in {shown[output]}")

    for output in watching:
        read(output, "IslandUp")
    fairway(cluster, "cordon", cluster.executors()[0].flag("island"))
    for output in watching:
        read(output, "IslandCordoned")
        watching[output].send_signal(signal.SIGINT)
        assert watching[output].wait(120) == -signal.SIGINT
    assert shown["text"].count("REASON") == 1 and len(shown["text"].splitlines()) == 3, shown["text"]
    lists = [json.loads(line) for line in shown["json"].splitlines()]
    assert [[event["reason"] for event in one["items"]] for one in lists] == [["IslandUp"], ["IslandCordoned"]]
