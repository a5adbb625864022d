# SPDX-License-Identifier: Apache-2.0
"""The health of a gateway as another host sees it: a controller, a gateway and who asks are a network namespace each."""

import subprocess
import sys
import textwrap

import pytest

from cluster import wait_for
from test_settings import run
from test_three_hosts import hosts

__all__ = ["hosts"]  # pytest's fixture

# Believes the gateway's certificate alone. Prints what HTTP answers, and what gRPC's health service says.
ASK = textwrap.dedent("""
    import ssl, sys, urllib.error, urllib.request
    import grpc
    at, ca = sys.argv[1:]
    for path in ("healthz", "readyz"):
        try:
            with urllib.request.urlopen(f"https://{at}/{path}", timeout=60, context=ssl.create_default_context(cafile=ca)) as answer:
                print(answer.status, answer.read().decode().strip())
        except urllib.error.HTTPError as error:
            print(error.code, error.read().decode().strip())
    with grpc.secure_channel(at, grpc.ssl_channel_credentials(open(ca, "rb").read())) as channel:
        print(channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=60).hex())
    """)


def make_certificate(folder, address):
    """One that signs itself, of no daemon."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=gateway",
                    "-addext", f"subjectAltName=IP:{address}", "-days", "30", "-keyout", folder / "own.key", "-out", folder / "own.pem"],
                   check=True, capture_output=True, timeout=240)


def test_another_host_asks_a_gateway_with_a_certificate_by_tls(hosts):
    first, second, third = hosts
    first.type("fairway init cluster --bind 10.0.0.1")
    first.start("exec fairway-controller --config cluster/fairway.toml", "listening on")
    token = first.type("fairway token create --role user --tenant red --from cluster")
    second.type(token.partition("export ")[0])  # makes ca.pem and red.token
    make_certificate(second.folder, "10.0.0.2")
    flags = "--controller=10.0.0.1:29000 --tls-ca=ca.pem --token-file=red.token --listen=unix:socket"
    said = second.start(f"exec fairway gateway {flags} --http-bind=10.0.0.2:0 --http-certificate=own.pem --http-key=own.key",
                        r"health at https://(10\.0\.0\.2:\d+)")
    at = said[1]

    def ask():
        return third.type(f"{sys.executable} -c '{ASK}' {at} {second.folder}/own.pem").split("\n")[:3]

    wait_for(lambda: ask() == ["200 ok", "503 waiting", "0802"], "its word that there is no island")
    first.type("fairway issue w0 --from cluster")
    first.start("exec fairway-worker --name=w0 --runtime=host --controller=10.0.0.1:29002 --data-bind=10.0.0.1:0 --tls-ca=cluster/w0/ca.pem "
                "--tls-certificate=cluster/w0/worker.pem --tls-key=cluster/w0/worker.key", "is connected to")
    wait_for(lambda: ask() == ["200 ok", "200 ready", "0801"], "its word that there is one")
    # Plain text gets nothing there.
    plain = subprocess.run(third.words(f"{sys.executable} -c 'import urllib.request as u; u.urlopen(\"http://{at}/healthz\", timeout=60)'"),
                           capture_output=True, text=True, timeout=240, check=False)
    assert plain.returncode != 0 and "200" not in plain.stdout


@pytest.mark.parametrize("flags, fault", [
    ("--http-bind=10.0.0.2:0", "which other hosts can reach: give the certificate that it is to show there by --http-certificate"),
    ("--http-bind=10.0.0.2:0 --http-key=own.key", "--http-bind, --http-certificate and --http-key belong together"),
    ("--http-certificate=own.pem", "--http-bind, --http-certificate and --http-key belong together"),
])
def test_other_flags_are_one_line(flags, fault):
    done = run("fairway", "gateway", "--controller=127.0.0.1:1", "--listen=unix:socket", "--tls-ca=ca.pem", *flags.split())
    assert done.returncode == 2 and fault in done.stderr and done.stderr.count("\n") == 1, done.stderr
