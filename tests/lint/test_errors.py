# SPDX-License-Identifier: Apache-2.0
"""docs/errors.md: each message on it is in the source, and each that chosen sources can print is on it."""

import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
# All errors of these are on the page: what daemons refuse at their start, how the command line reaches a cluster
# and its hosts, and who may join.
CHOSEN = """
controller/settings.cc worker/settings.cc worker/gpus.cc worker/main.cc identity/tls_flags.cc identity/plain_text.cc
identity/tls_probe.cc identity/tls_identity.cc identity/database.cc identity/token_store.cc identity/gate.cc
identity/issuer.cc base/settings_file.cc transport/connect.cc transport/frame.cc transport/link.cc
controller/admin/log_stream.cc controller/daemon/worker_hub_lines.cc controller/daemon/worker_lines.cc
controller/cluster/fleet.cc controller/cluster/registry.cc controller/cluster/cordons.cc controller/cluster/memory.cc
client/cli/admin_client.cc client/cli/gateway.cc client/cli/up.cc client/cli/launcher.cc client/cli/identity.cc
client/cli/diagnose.cc client/cli/log_files.cc client/cpp/credentials.cc
client/hosts/facts.cc client/hosts/host.cc client/hosts/ssh.cc client/hosts/steps.cc client/hosts/local_file.cc
client/hosts/up.cc client/hosts/down.cc client/hosts/upgrade.cc deploy/helm/fairway/templates/_check.tpl
""".split()
# They say what a flag, a name or a number may be, and need no page; or they are for those who change Fairway.
PLAIN = re.compile(
    r"must be |must divide|is '\{\}', not|is \{\}, not|^expected `|is empty; expected|has at most|at least one|"
    r"is for --runtime|is for the controller's only|is no list|neither|a token (of role|lives|may be used)|only the uses|"
    r"listed, but|are known or free|counts \{\}|lists executor|is not executor|opens: |has \{\}, not|a row has|is not understood|new sessions know of it|"
    r"cannot make a file in memory|^tar |^dd |made, and is lost|its target of compiling|have had no|--life-fd|"
    r"^fairway cluster upgrade: \{\}")
CALL = re.compile(r"(?:InvalidArgument|Error|Annotate|Invalid|Refuse|Fail|spdlog::error|fmt::print)\(|\bfail\b")
STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def joined(text):
    """The source with its strings that stand behind each other as one, as the compiler has them."""
    return re.sub(r'(?<!\\)"\s*\n\s*f?"', "", text)


def plain(text):
    """As page and source are compared: without marks of code, and with quotes as they are shown."""
    return re.sub(r"\s+", " ", text.replace('\\"', '"').replace("\\n", " ").replace("`", ""))


def fragments(text):
    """What of a message is the same each time."""
    parts = re.split(r"\{[^{}]*\}|%[sdq]|\.\.\.", plain(text))
    return [part.strip() for part in parts if len(part.strip()) >= 8]


def errors_of(path):
    """The texts of errors that a source makes."""
    text = re.sub(r"(^|\s)// .*", "", joined((ROOT / path).read_text(encoding="utf-8")))
    found = []
    for call in CALL.finditer(text):
        if call.group() == "fmt::print(" and not text.startswith("stderr", call.end()):
            continue  # it worked
        statement = text[call.start():].partition(";\n" if path.endswith(".cc") else "}}")[0]
        # Another call is looked at by itself.
        found += [string[1:-1] for string in STRING.findall(statement)]
    return [text for text in dict.fromkeys(found)
            if len(max(fragments(text), key=len, default="")) >= 24 and not PLAIN.search(text)]


@functools.cache
def page():
    return (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")


def messages():
    """Those of the tables before the part about other programs."""
    ours = page().partition("\n## Of other programs")[0]
    return re.findall(r"^\| `([^|]*)` \|", ours, re.M)


def short_forms():
    """The parts of messages in the table of faults; commands and the texts of other programs are left out."""
    table, _, rest = page().partition("\n## Faults of hosts")[2].partition("\n## ")
    others = rest.partition("\n## Of other programs")[2]
    return [span for span in re.findall(r"`([^`]*)`", table)
            if not span.startswith("fairway ") and f"`{span}`" not in others]


@functools.cache
def all_sources():
    files = [path for folder in ("base", "client", "controller", "identity", "transport", "worker", "deploy", "log", "scheduler")
             for kind in ("*.cc", "*.h", "*.py", "*.tpl", "*.sh") for path in (ROOT / folder).rglob(kind)
             if not path.name.endswith("_test.cc")]
    return plain("\n".join(joined(path.read_text(encoding="utf-8")) for path in files))


def missing_from_source(message):
    return [part for part in fragments(message) if part not in all_sources()]


def test_each_message_of_the_page_is_in_the_source():
    assert len(messages()) > 60 and len(short_forms()) > 10
    wrong = {message: missing for message in messages() + short_forms() if (missing := missing_from_source(message))}
    assert not wrong, wrong


def test_each_error_of_the_chosen_sources_is_on_the_page():
    told = " ".join(plain(message) for message in messages())
    wrong = [f"{path}: {error}" for path in CHOSEN for error in errors_of(path)
             if max(fragments(error), key=len) not in told]
    assert not wrong, "\n".join(wrong)


def test_a_message_that_nobody_prints_is_found():
    assert missing_from_source("the frobnicator of ... is out of oil")
    assert not missing_from_source("cannot listen at ...: port ... is taken")


def test_errors_are_found_in_sources():
    assert len(errors_of("worker/settings.cc")) >= 2
    assert any("joined another cluster before" in error for error in errors_of("client/hosts/steps.cc"))
    assert sum(len(errors_of(path)) for path in CHOSEN) > 80
