# SPDX-License-Identifier: Apache-2.0
"""Makes the JAX backend client of a controller, or explains in plain words why it cannot.

jaxlib holds the client side of the protocol. With a wrong address it would retry for two minutes
and log a line a second, so a plain TCP connection tries the address first.
"""

from __future__ import annotations

import importlib.metadata
import os
import socket
import ssl
from typing import Any

from fairway import arguments, callbacks, gateway, jax_versions, notices, terminal

ENVIRONMENT = "FAIRWAY_CONTROLLER"
TLS_CA = "FAIRWAY_TLS_CA"
TOKEN_FILE = "FAIRWAY_TOKEN_FILE"
DEFAULT_PORT = 29000
LOCAL = f"127.0.0.1:{DEFAULT_PORT}"  # where `fairway up` listens by default
PLATFORM = "fairway"

_PROBE_SECONDS = 3.0
_SESSION_SECONDS = 20.0
_HOW_TO_START = "start a local cluster with: fairway up --islands 2 --devices 4"

# The address given to connect(); it precedes the environment. Set before JAX creates its backends.
_chosen: dict[str, Any] = {"address": None, "tls_ca": None, "token_file": None, "timeout": _PROBE_SECONDS}


class ControllerError(RuntimeError):
    """There is no session; the text is one line: which address, what happened, what to do."""


def parse_address(text: str) -> tuple[str, int]:
    """Splits the address of a controller.

    Args:
      text: "host:port", "host" (port 29000), "[v6]:port", each with or without "grpc://".

    Returns:
      (host, port).

    Raises:
      ControllerError: the text has none of these forms.
      TypeError: it is not a string.
    """
    if not isinstance(text, str):
        raise TypeError(f"{text!r} is no address of a controller; expected a string, 'host:port'")
    rest = text.strip().removeprefix("grpc://").rstrip("/")
    host, colon, port = rest, "", ""
    if rest.startswith("["):
        host, _, tail = rest[1:].partition("]")
        colon, port = tail[:1], tail[1:]
    elif rest.count(":") == 1:
        host, colon, port = rest.partition(":")
    if not host or colon not in ("", ":") or "/" in host or (":" in host and "[" not in rest):
        raise ControllerError(f"{text!r} is no address of a controller; expected host:port")
    if not colon:
        return host, DEFAULT_PORT
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ControllerError(f"{text!r} is no address of a controller: {port!r} is no port")
    return host, int(port)


def probe(host: str, port: int, timeout: float, variable: str = ENVIRONMENT) -> None:
    """Returns once something accepts TCP connections at host:port.

    Args:
      host: name or address.
      port: 1..65535.
      timeout: seconds to wait for the connection.
      variable: the environment variable of the address, for the error.

    Raises:
      ControllerError: nothing accepts them.
    """
    try:
        socket.create_connection((host, port), timeout=timeout).close()
    except OSError as error:
        reason = "no answer within %g s" % timeout if isinstance(error, TimeoutError) else (
            error.strerror or str(error)
        )
        raise ControllerError(
            f"no Fairway controller at {host}:{port} ({reason}); {_HOW_TO_START}, "
            f"or set {variable}=host:port to a running one"
        ) from None


def prepare_process() -> None:
    """Prepares the process for jaxlib's proxy client, before its first session. Idempotent."""
    # The wheel offers plain text or a cloud's credentials; it reads this at the first session.
    os.environ.setdefault("IFRT_PROXY_USE_INSECURE_GRPC_CREDENTIALS", "true")
    arguments.install()
    callbacks.install()
    jax_versions.prepare()
    terminal.prepare()


def make_client(address: str, timeout: float = _PROBE_SECONDS, variable: str = ENVIRONMENT,
                tls_ca: str | None = None, token_file: str | None = None) -> Any:
    """Opens a session.

    Args:
      address: as `parse_address` takes it.
      timeout: seconds to wait for the TCP connection.
      variable: as for `probe`.
      tls_ca: PEM file of the CA that has signed the controller's certificate; None: that of
        FAIRWAY_TLS_CA, and without it no TLS.
      token_file: file of the token that says who this client is; None: that of FAIRWAY_TOKEN_FILE,
        and without it no token.

    Returns:
      The IFRT proxy client of jaxlib, as JAX's backend registry wants it.

    Raises:
      ControllerError: nothing listens there; the server there is no controller; it refused the
        session (because of the version of jaxlib, say; its own text is kept); TLS does not fit; or
        jaxlib has no IFRT proxy.
    """
    host, port = parse_address(address)
    probe(host, port, timeout, variable)
    try:
        from jax.extend.backend import ifrt_proxy
    except ImportError:
        raise ControllerError(
            "this jaxlib has no IFRT proxy client; Fairway needs jax and jaxlib "
            f"{jax_versions.OLDEST} or newer"
        ) from None
    prepare_process()
    options = ifrt_proxy.ClientConnectionOptions()
    options.connection_timeout_in_seconds = int(_SESSION_SECONDS)
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    authorities = tls_ca or os.environ.get(TLS_CA)
    token = token_file or os.environ.get(TOKEN_FILE)
    if token and not authorities:
        raise ControllerError(f"a token goes by TLS only: set {TLS_CA} to the PEM file of the cluster's CA (or tls_ca=), "
                              f"or give no token ({TOKEN_FILE}, token_file=)")
    tls = _start_gateway(where, authorities, token) if authorities else None
    session = terminal.watch(options, where, tls)
    try:
        client = ifrt_proxy.get_client(f"grpc://unix:{tls.path}" if tls else f"grpc://{where}", options)
    except Exception as error:
        if tls:
            tls.close()
        reason = " ".join(str(error).split())
        if not authorities and _speaks_tls(host, port):
            reason = (f"it speaks TLS; set {TLS_CA} to the PEM file of its CA, or call "
                      "fairway.connect(..., tls_ca=FILE)")
        raise ControllerError(
            f"{where} accepts connections but opened no Fairway session: {reason}"
        ) from None
    terminal.keep(session, client)
    _compare_versions(client, where)
    return client


def _start_gateway(where: str, authorities: str, token: str | None) -> gateway.Gateway:
    try:
        return gateway.start(where, authorities, token)
    except gateway.GatewayError as error:
        raise ControllerError(f"no session by TLS: {error}") from None


def _speaks_tls(host: str, port: int) -> bool:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=_PROBE_SECONDS) as plain:
            context.wrap_socket(plain).close()
    except OSError:
        return False
    return True


def package_version() -> str | None:
    """The version of the installed package. Not `fairway.__version__`: `fairway` may be a folder of the user's."""
    try:
        return importlib.metadata.version("fairway")
    except importlib.metadata.PackageNotFoundError:
        return None


def _compare_versions(client: Any, where: str) -> None:
    """Tells once if the controller and this package are of different versions."""
    theirs = getattr(next(iter(client.devices()), None), "controller_version", None)
    ours = package_version()
    if theirs and ours and theirs != ours:
        notices.say("version", f"the controller at {where} is {theirs}, this package {ours}; if "
                    "something fails that should not, install the package of the controller's version")


def client_of_environment() -> Any:
    """The backend factory of platform "fairway": the address of `connect`, else the environment's.

    Returns:
      As `make_client`.

    Raises:
      ControllerError: as `make_client`; or no address was given anywhere; or the process does not
        name the platform: JAX then tries every factory that it knows, and skips this one.
    """
    import jax

    if PLATFORM not in (jax.config.jax_platforms or "").split(","):
        raise ControllerError(
            f"this process does not ask for platform {PLATFORM!r}; set "
            f"JAX_PLATFORMS={PLATFORM},cpu or call fairway.connect('host:port')"
        )
    address = _chosen["address"] or os.environ.get(ENVIRONMENT)
    if not address:
        raise ControllerError(
            f"no address of a Fairway controller; set {ENVIRONMENT}=host:port "
            f"({_HOW_TO_START}, which prints it) or call fairway.connect('host:port')"
        )
    return make_client(address, _chosen["timeout"], tls_ca=_chosen["tls_ca"],
                       token_file=_chosen["token_file"])


def client_of_backend_target() -> Any:
    """The backend factory of platform "proxy"; the address is JAX's own jax_backend_target.

    Returns:
      As `make_client`.

    Raises:
      ControllerError: as `make_client`, or JAX_BACKEND_TARGET is not set.
    """
    import jax

    target = jax.config.read("jax_backend_target")
    if not target:
        raise ControllerError(
            "platform 'proxy' needs JAX_BACKEND_TARGET=grpc://host:port, the address of a controller"
        )
    return make_client(target, variable="JAX_BACKEND_TARGET")


def connect(address: str | None = None, *, timeout: float = _PROBE_SECONDS,
            tls_ca: str | os.PathLike | None = None, token_file: str | os.PathLike | None = None) -> str:
    """Makes the devices of a cluster the default devices of JAX in this process.

    Has the same effect as a start with JAX_PLATFORMS=fairway,cpu FAIRWAY_CONTROLLER=address. The
    session itself opens when JAX first needs its devices.

    Args:
      address: "host:port" of a controller. None: the environment variable FAIRWAY_CONTROLLER, and
        without that the local cluster, 127.0.0.1:29000, as for the command line.
      timeout: seconds to wait for the TCP connection to it, now and when the session opens.
      tls_ca: PEM file of the CA that has signed the controller's certificate: the session goes by
        TLS, through a process `fairway gateway` that ends with this one. None: FAIRWAY_TLS_CA, and
        without that plain text.
      token_file: file of the token that says who this client is (`fairway token create`), which only
        its owner can read, or /dev/fd/N. None: FAIRWAY_TOKEN_FILE, and without that no token.

    Returns:
      The address that was taken.

    Raises:
      ControllerError: it is not an address, or nothing listens there.
      TypeError: the address is not a string.
      RuntimeError: JAX has already created its backends, which cannot be changed afterwards.
    """
    import jax
    from jax._src import xla_bridge

    from fairway import jax_plugin

    if xla_bridge.backends_are_initialized():
        names = ", ".join(sorted(xla_bridge.backends()))
        raise RuntimeError(
            f"fairway.connect came too late: JAX already uses its backends ({names}); call it "
            "before the first jax.devices() or jax.numpy operation"
        )
    chosen = address or os.environ.get(ENVIRONMENT) or LOCAL
    probe(*parse_address(chosen), timeout)
    _chosen.update(address=chosen, timeout=timeout, tls_ca=os.fspath(tls_ca) if tls_ca else None,
                   token_file=os.fspath(token_file) if token_file else None)
    jax_plugin.initialize()
    platforms = [p for p in (jax.config.jax_platforms or "cpu").split(",") if p != PLATFORM]
    jax.config.update("jax_platforms", ",".join([PLATFORM, *platforms]))
    return chosen
