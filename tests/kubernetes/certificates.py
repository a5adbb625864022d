# SPDX-License-Identifier: Apache-2.0
"""Certificates of a Kubernetes cluster, by openssl: a CA, and who is who by a certificate of it."""

import base64
import json
import subprocess


def _openssl(*words):
    done = subprocess.run(["openssl", *map(str, words)], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, f"openssl {words}\n{done.stderr}"


class Authority:
    """The CA, in a folder with all that it signs."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self.file = folder / "ca.pem"
        _openssl("req", "-x509", *self._new_key("ca"), "-days", 2, "-subj", "/CN=kubernetes", "-out", self.file)

    def _new_key(self, name):
        return ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", self.folder / f"{name}.key")

    def sign(self, name, user, group=None, hosts=()):
        """(certificate, key) of that user in that group, for a client and for a server of those hosts."""
        out = self.folder / f"{name}.pem"
        names = ",".join(f"{'IP' if host[0].isdigit() else 'DNS'}:{host}" for host in hosts or [name])
        subject = (f"/O={group}" if group else "") + f"/CN={user}"
        _openssl("req", "-x509", *self._new_key(name), "-days", 2, "-subj", subject, "-CA", self.file,
                 "-CAkey", self.folder / "ca.key", "-addext", "basicConstraints=critical,CA:FALSE",
                 "-addext", f"subjectAltName={names}", "-addext", "extendedKeyUsage=serverAuth,clientAuth", "-out", out)
        return out, self.folder / f"{name}.key"

    def key_pair(self, name):
        """(public, private) key, which sign the tokens of service accounts."""
        private, public = self.folder / f"{name}.key", self.folder / f"{name}.pub"
        _openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
        _openssl("ec", "-in", private, "-pubout", "-out", public)
        return public, private

    def kubeconfig(self, name, user, server, group=None, hosts=()):
        """A file by which that user asks the API server."""
        certificate, key = self.sign(name, user, group, hosts)

        def text(path):
            return base64.b64encode(path.read_bytes()).decode()

        out = self.folder / f"{name}.conf"
        out.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "it",
            "clusters": [{"name": "it", "cluster": {"server": server, "certificate-authority-data": text(self.file)}}],
            "users": [{"name": "it", "user": {"client-certificate-data": text(certificate), "client-key-data": text(key)}}],
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}]}))
        out.chmod(0o600)
        return out
