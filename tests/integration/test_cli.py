# SPDX-License-Identifier: Apache-2.0
"""The fairway command against a real cluster."""

import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request

import pytest

from cluster import BIN, clean_environment, free_ports, wait_for


def run(program, *arguments, **environment):
    return subprocess.run(
        [str(BIN / program), *arguments], env=clean_environment(**environment), text=True,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
    )


def one_line(text):
    assert text.endswith("\n") and text.count("\n") == 1, text
    return text


# ---- flags ----


@pytest.mark.parametrize(
    "program, arguments",
    [
        ("fairway-controller", ["--prot=1"]),
        ("fairway", ["up", "--prot=1"]),
        ("fairway", ["status", "--controler=x"]),
        ("fairway", ["down", "--controler", "x"]),
        ("fairway", ["logs", "--line=3"]),
        ("fairway-worker", ["--contoller=x"]),
    ],
)
def test_an_unknown_flag_is_an_error_that_suggests_the_right_one(program, arguments):
    done = run(program, *arguments)
    assert done.returncode == 2
    assert "unknown flag" in done.stderr and "did you mean --" in one_line(done.stderr)


@pytest.mark.parametrize(
    "program, flags", [("fairway-controller", ["--http-port=0"]),
                       ("fairway-worker", ["--runtime=host", "--controller=127.0.0.1:1"])])
def test_an_unknown_log_level_is_an_error(program, flags):
    for done in (run(program, *flags, "--log-level=inof"),
                 run(program, *flags, FAIRWAY_LOG_LEVEL="inof")):
        assert done.returncode == 2
        assert "'inof' is none of trace, debug, info, warn and error" in one_line(done.stderr)


@pytest.mark.parametrize("flag, expected", [
    ("--controller=127.0.0.1", "not HOST:PORT of the controller's link port"),
    ("--controller=127.0.0.1:0", "not HOST:PORT of the controller's link port"),
    ("--data-bind=foo", "not HOST:PORT"),
    ("--island=", "expected a name"),
    ("--life-fd=99", "not an open descriptor"),
])
def test_a_worker_does_not_start_with_flags_that_never_work(flag, expected):
    done = run("fairway-worker", "--runtime=host", "--controller=127.0.0.1:1", flag)
    assert done.returncode == 2
    line = one_line(done.stderr)
    assert flag.partition("=")[0] in line and expected in line


def test_print_config_tells_each_value_and_where_it_came_from():
    done = run(
        "fairway-controller", "--print-config", "--http-port=7", FAIRWAY_EXECUTOR_DEADLINE="3s"
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "--http-port=7  (flag)" in lines
    assert "--executor-deadline=3s  (environment FAIRWAY_EXECUTOR_DEADLINE)" in lines
    assert "--port=29000  (default)" in lines


def test_a_worker_does_not_take_the_clients_address_for_its_own():
    environment = {"FAIRWAY_CONTROLLER": "h:1", "FAIRWAY_CONTROLLER_LINK": "h:2"}
    lines = run("fairway-worker", "--print-config", **environment).stdout.splitlines()
    assert "--controller=h:2  (environment FAIRWAY_CONTROLLER_LINK)" in lines


def test_an_unknown_command_and_none_at_all():
    assert "unknown command 'stauts'" in one_line(run("fairway", "stauts").stderr)
    assert run("fairway", "stauts").returncode == 2
    assert run("fairway").returncode == 2
    assert run("fairway", "--help").returncode == 0


def test_a_benchmark_is_a_program_beside_the_command():
    assert "there is: scale" in one_line(run("fairway", "bench", "nonsense").stderr)
    assert run("fairway", "bench").returncode == 2
    assert "scale" in run("fairway", "bench", "--help").stdout


def test_bad_values_are_one_line():
    assert "--islands must be" in one_line(run("fairway", "up", "--islands=0").stderr)
    assert "cannot read the plugin" in one_line(run("fairway", "up", "--plugin=/no/such").stderr)
    assert "--output must be" in one_line(run("fairway", "status", "-o", "xml").stderr)


@pytest.mark.parametrize("port", [[], ["--port=1"]])
@pytest.mark.parametrize("address, expected", [
    ("foo", "'foo' is not an IP address"),
    ("localhost", "'localhost' is not an IP address"),
    # The network is reserved for documentation: no host has this address.
    ("192.0.2.1", "cannot listen at 192.0.2.1: Cannot assign requested address"),
])
def test_up_names_the_bind_flag_when_its_address_is_none(address, expected, port):
    done = run("fairway", "up", "--runtime=host", f"--bind={address}", *port)
    assert done.returncode == 2
    assert one_line(done.stderr).startswith(f"fairway up: --bind={address}: {expected}")


def test_the_version_needs_no_command():
    done = run("fairway", "--version")
    assert done.returncode == 0 and one_line(done.stdout).startswith("fairway ")


@pytest.mark.parametrize("lines", ["0", "-5"])
def test_logs_of_no_lines_are_refused(lines):
    done = run("fairway", "logs", "-n", lines)
    assert done.returncode == 2 and "--lines must be at least 1" in one_line(done.stderr)


def test_a_controller_whose_life_pipe_is_none_says_so():
    done = run("fairway-controller", "--http-port=0", "--life-fd=99")
    assert done.returncode == 2 and "--life-fd is 99, not an open descriptor" in one_line(done.stderr)


@pytest.mark.parametrize("ahead", ["0", "-1", "1000000"])
def test_launches_ahead_have_a_bound(ahead):
    done = run("fairway-controller", "--http-port=0", f"--launches-ahead={ahead}")
    assert done.returncode == 2 and f"--launches-ahead is {ahead}, not 1 to " in one_line(done.stderr)


def test_a_plugin_that_cannot_be_loaded_is_one_line_that_says_so(tmp_path):
    plugin = tmp_path / "plugin.so"
    plugin.write_text("no library")
    for flags in ([], ["--detach"]):
        done = run("fairway", "up", f"--plugin={plugin}", *flags, XDG_STATE_HOME=str(tmp_path))
        assert done.returncode == 1
        line = one_line(done.stderr)
        assert "w0 ended with exit code 3" in line and "cannot load" in line and str(plugin) in line


@pytest.mark.parametrize("flags, expected", [
    (["--plugin-kind=tpu"], "'tpu', not cpu or cuda"),
    (["--plugin-kind=cuda"], "takes --plugin PATH"),
])
def test_up_names_what_is_wrong_with_the_plugins_kind(flags, expected):
    done = run("fairway", "up", *flags)
    assert done.returncode == 2 and expected in one_line(done.stderr)


@pytest.mark.parametrize("option, expected", [
    ("no_such=1", 'a cuda plugin has no option "no_such" (it has: '),
    ("preallocate", "preallocate has no value; expected preallocate=VALUE, a bool"),
    ("preallocate=1", 'preallocate is a bool, got "1"'),
    ("memory_fraction=half", 'memory_fraction is a float, got "half"'),
    ("num_nodes=2x", 'num_nodes is an integer, got "2x"'),
    ("visible_devices=0,a", 'visible_devices is a list of integers, got "0,a"'),
])
def test_a_plugin_option_that_is_none_is_refused_with_the_names_that_exist(option, expected):
    done = run("fairway-worker", "--plugin=/no/such", "--plugin-kind=cuda", f"--plugin-option={option}")
    assert done.returncode == 2
    line = one_line(done.stderr)
    assert "--plugin-option: " in line and expected in line
    has = line.split("has: ")[1]
    assert "memory_fraction, " in has and "visible_devices" in has


def test_a_cpu_plugin_has_no_options_and_takes_each_once():
    done = run("fairway-worker", "--plugin=/no/such", "--plugin-option=cpu_device_count=3")
    assert done.returncode == 2 and "(it has: none)" in one_line(done.stderr)
    done = run("fairway-worker", "--plugin=/no/such", "--plugin-kind=cuda",
               "--plugin-option=num_nodes=1", "--plugin-option=num_nodes=2")
    assert done.returncode == 2 and "num_nodes is given twice" in one_line(done.stderr)


def test_lines_of_json_that_are_not_ours_end_nothing(tmp_path):
    (tmp_path / "bin").mkdir()
    fairway = shutil.copy(BIN / "fairway", tmp_path / "bin")  # it starts the controller beside it
    controller = tmp_path / "bin" / "fairway-controller"
    controller.write_text("""#!/bin/sh
echo '{"level":30,"msg":"by number"}'
echo '{"level":"error","msg":["no text"]}'
echo '{"level":"error","msg":"the cause"}'
exit 1
""")
    controller.chmod(0o755)
    done = subprocess.run(
        [fairway, "up", "--runtime=host", "--port=1"], text=True, capture_output=True, timeout=60,
        env=clean_environment(XDG_STATE_HOME=str(tmp_path)),
    )
    assert done.returncode == 1 and "exit code 1: the cause" in one_line(done.stderr)


# ---- looking ----


def test_nobody_there_is_one_clear_line():
    with socket.socket() as nobody:  # has the port, so that nobody else takes it, and does not listen
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        for command in ("status", "logs", "down"):
            done = run("fairway", command, f"--controller=127.0.0.1:{port}")
            assert done.returncode == 1
            assert f"no controller answers at 127.0.0.1:{port}" in one_line(done.stderr)
            assert "start a cluster by `fairway up`" in done.stderr


def test_status_shows_islands_executors_and_memory(cluster):
    status = cluster.status()
    assert [i["name"] for i in status["islands"]] == ["island0", "island1"]
    assert all(i["up"] for i in status["islands"])
    assert sorted(e["worker"] for e in status["executors"]) == ["w0", "w1"]
    assert all(e["up"] and e["supervisor_connected"] for e in status["executors"])
    assert [len(e["devices"]) for e in status["executors"]] == [2, 2]
    assert status["counts"]["sessions"] == 0
    text = cluster.cli("status", "--controller", cluster.address).stdout
    assert "island0 up" in text and "2 cpu devices" in text


def test_the_controllers_address_may_come_from_the_environment(cluster):
    done = run("fairway", "status", FAIRWAY_CONTROLLER=f"grpc://{cluster.address}")
    assert done.returncode == 0 and "island1 up" in done.stdout


def test_logs_of_all_of_one_and_of_an_unknown_worker(cluster):
    assert "listening on 127.0.0.1" in cluster.logs()
    assert '"component":"controller"' in cluster.logs()
    one = cluster.cli("logs", "w1", "--controller", cluster.address).stdout
    assert one and "listening on" not in one
    done = cluster.cli("logs", "w7", "--controller", cluster.address, check=False)
    assert done.returncode == 1
    assert "no process 'w7'; there are: controller, up, w0, w1" in one_line(done.stderr)
    lines = cluster.cli("logs", "controller", "-n", "1", "--controller", cluster.address).stdout
    assert lines.count("\n") == 1


def test_log_lines_are_json_objects_when_they_go_to_a_file(cluster):
    def records():
        lines = cluster.cli("logs", "--controller", cluster.address).stdout.splitlines()
        texts = [line.split(None, 1)[1] for line in lines]
        return [json.loads(text) for text in texts if text.startswith("{")]  # XLA writes others

    # Compile processes start last, perhaps after the cluster is ready.
    wait_for(lambda: {"controller", "supervisor", "executor", "compiler"} <= {r["component"] for r in records()},
             "a line of each kind of process")
    assert all({"ts", "level", "component", "msg"} <= record.keys() for record in records())
    assert {r["island"] for r in records() if r["component"] == "executor"} == {"island0", "island1"}


# ---- HTTP ----


def test_health_readiness_and_metrics(cluster):
    assert cluster.get("/healthz") == "ok\n"
    assert cluster.get("/readyz") == "ready\n"
    metrics = cluster.metrics()
    assert metrics.by("fairway_executor_up", "worker") == {"w0": 1, "w1": 1}
    assert metrics.by("fairway_island_up", "island") == {"island0": 1, "island1": 1}
    for name in (
        "fairway_uploaded_bytes_total", "fairway_fetched_bytes_total",
        "fairway_inline_fetches_total", "fairway_transferred_bytes_total",
        "fairway_gangs_launched_total", "fairway_executor_fetches_total", "fairway_sessions",
        "fairway_arrays", "fairway_shard_groups", "fairway_nodes_unfinished",
        "fairway_device_memory_used_bytes", "fairway_executor_up", "fairway_compilations_total",
        "fairway_compile_cache_hits_total", "fairway_process_open_fds", "fairway_process_threads",
    ):
        assert f"# TYPE {name} " in cluster.get("/metrics")


def test_web_pages_of_others_read_nothing_but_that_the_controller_lives(cluster):
    def get(path, **headers):
        url = f"http://127.0.0.1:{cluster.http_port}{path}"
        request = urllib.request.Request(url, headers={k.replace("_", "-"): v for k, v in headers.items()})
        try:
            with urllib.request.urlopen(request, timeout=30) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    for headers, named in (
        ({"Origin": "https://evil.example"}, "'https://evil.example'"),
        ({"Sec_Fetch_Site": "cross-site"}, "'cross-site'"),
        ({"Host": f"evil.example:{cluster.http_port}"}, "--http-name=evil.example"),
    ):
        for path in ("/", "/metrics", "/nothing"):
            status, text = get(path, **headers)
            assert status == 403 and named in text and text.count("\n") == 1, text
        assert get("/healthz", **headers) == (200, "ok\n")
        assert get("/readyz", **headers) == (200, "ready\n")
    assert get("/metrics", Host=f"{socket.gethostname()}:{cluster.http_port}")[0] == 200


def test_a_controller_without_workers_is_healthy_but_not_ready():
    process = subprocess.Popen(
        [BIN / "fairway-controller", "--port=0", "--http-port=0", "--link-port=0", "--data-port=0"],
        env=clean_environment(), stderr=subprocess.PIPE, text=True,
    )
    try:
        line = process.stderr.readline()
        assert "listening on 127.0.0.1 (this host only" in line
        http = int(re.search(r"HTTP (\d+)", line)[1])
        for path, status in (("/healthz", 200), ("/readyz", 503), ("/nothing", 404)):
            with socket.create_connection(("127.0.0.1", http)) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
                assert connection.recv(13, socket.MSG_WAITALL) == f"HTTP/1.1 {status} ".encode()
    finally:
        process.terminate()
        assert process.wait(120) == 0
        process.stderr.close()


# ---- up and down ----


def up_in_the_foreground(tmp_path, port):
    """(the process, what it has said until it was ready or ended)"""
    process = subprocess.Popen(
        [BIN / "fairway", "up", "--islands=1", "--devices=1", f"--port={port}"],
        env=clean_environment(XDG_STATE_HOME=str(tmp_path)), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    text = ""
    for line in process.stdout:
        text += line
        if "The cluster is ready" in text:
            break
    return process, text


def test_up_in_the_foreground_until_interrupted(tmp_path):
    for _ in range(5):
        (port,) = free_ports(1)
        process, text = up_in_the_foreground(tmp_path, port)
        if " is taken" not in text:  # by a test beside this one
            break
        process.communicate(timeout=120)
    try:
        assert f"export FAIRWAY_CONTROLLER=127.0.0.1:{port}" in text, text
        assert "export JAX_PLATFORMS=fairway,cpu" in text
        assert str(tmp_path / "fairway" / str(port)) in text
        assert (tmp_path / "fairway" / str(port) / "w0.log").is_file()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
        process.stdout.close()
    done = run("fairway", "status", f"--controller=127.0.0.1:{port}")
    assert done.returncode == 1


def test_a_cluster_of_two_times_four_is_up_within_five_seconds_and_down_leaves_nothing(new_cluster):
    """One of several: where other programs have the processors, some take longer."""
    def up_and_down():
        cluster = new_cluster(islands=2, devices=4)
        names = sorted({p.program for p in cluster.processes()})
        assert names == ["fairway", "fairway-controller", "fairway-worker"]
        done = cluster.down()
        assert "is down" in done.stdout
        assert cluster.processes() == []
        return cluster.seconds_to_start < 5

    wait_for(up_and_down, "a cluster to be up within 5 s")


def test_kill_nine_of_up_leaves_nothing(new_cluster):
    cluster = new_cluster(islands=2, devices=1)
    (up,) = [p for p in cluster.processes() if p.program == "fairway"]
    os.kill(up.pid, signal.SIGKILL)
    wait_for(lambda: not cluster.processes(), "all processes to end")


def test_up_on_the_port_of_a_cluster_leaves_that_its_logs(cluster):
    for detach in ([], ["--detach"]):
        done = cluster.cli("up", f"--port={cluster.port}", *detach, check=False)
        assert done.returncode == 5
        assert f"--port={cluster.port}" in one_line(done.stderr)
    assert "listening on 127.0.0.1" in cluster.logs()


def test_addresses_of_version_6_are_told_in_brackets(tmp_path):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    done = run("fairway", "up", "--bind=::1", "--runtime=host", "--detach", **environment)
    assert done.returncode == 0, done.stderr
    (address,) = re.findall(r"export FAIRWAY_CONTROLLER=(.*)", done.stdout)
    try:
        assert re.fullmatch(r"\[::1\]:\d+", address)
        assert "metrics http://[::1]:" in run("fairway", "status", f"--controller={address}").stdout
        # No JAX program can be compiled there.
        assert "JAX" not in done.stdout
    finally:
        run("fairway", "down", f"--controller={address}")


def test_a_port_in_use_is_named_with_its_flag():
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        for flag in ("port", "http-port", "link-port", "data-port"):
            others = [f"--{o}=0" for o in ("port", "http-port", "link-port", "data-port") if o != flag]
            done = run("fairway-controller", f"--{flag}={port}", *others)
            assert done.returncode == 5, done.stderr
            assert f"--{flag}={port}" in done.stderr and f"port {port} is taken" in done.stderr
        done = run("fairway", "up", f"--port={port}")
        assert done.returncode == 5
        assert f"--port={port}" in one_line(done.stderr)
        assert "end what has it, or choose another one" in done.stderr
        done = run("fairway", "up", "--detach", f"--port={port}")
        assert done.returncode == 5
        assert f"--port={port}" in one_line(done.stderr)
        assert "end what has it, or choose another one" in done.stderr


def test_two_clusters_with_ports_of_their_own_choosing(tmp_path):
    environment = clean_environment(XDG_STATE_HOME=str(tmp_path))
    addresses = []
    try:
        for _ in range(2):
            done = subprocess.run(
                [BIN / "fairway", "up", "--detach"], env=environment, text=True,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=240,
            )
            assert done.returncode == 0, done.stderr
            (line,) = [l for l in done.stdout.splitlines() if "FAIRWAY_CONTROLLER=" in l]
            addresses.append(line.partition("=")[2])
        assert addresses[0] != addresses[1]
    finally:
        for address in addresses:
            assert run("fairway", "down", f"--controller={address}").returncode == 0
    assert len(list(pathlib.Path(tmp_path / "fairway").iterdir())) == 2
