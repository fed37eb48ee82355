"""A real identity provider, as far as Kafka's clients need one: OpenID Connect, client credentials.

It gives tokens over HTTP and HTTPS, which it signs with a key of its own, and shows the key's public half to brokers.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote_plus

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from tailrace.dev.certificates import Issued
from tailrace.dev.ports import LOOPBACK

# What brokers expect of a token.
AUDIENCE = "kafka"
_LASTS = 300


class IdentityProvider:
    """Knows clients and their secrets, which a test may change. `asked` counts the requests for a token."""

    def __init__(self, directory: Path, certificate: Issued, clients: dict[str, str]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.clients = clients
        self.asked = 0
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        certificate.write(directory / "provider.pem")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "provider.pem")
        self._plain = self._serve(None)
        self._encrypted = self._serve(context)

    @property
    def keys_url(self) -> str:
        """Where brokers find the key."""
        return f"http://{LOOPBACK}:{self._plain.server_address[1]}/keys"

    @property
    def token_url(self) -> str:
        """Where clients get tokens."""
        return f"http://{LOOPBACK}:{self._plain.server_address[1]}/token"

    @property
    def encrypted_token_url(self) -> str:
        """The same with TLS."""
        return f"https://localhost:{self._encrypted.server_address[1]}/token"

    def stop(self) -> None:
        for server in (self._plain, self._encrypted):
            server.shutdown()
            server.server_close()

    def answer(self, path: str, basic: str, body: str) -> tuple[int, object]:
        """The answer to a request; `basic` is what its header Authorization says."""
        if path == "/keys":
            return 200, {
                "keys": [{**json.loads(RSAAlgorithm.to_jwk(self._key.public_key())), "kid": "1", "alg": "RS256"}]
            }
        self.asked += 1
        asked = parse_qs(body)
        # RFC 6749 has both halves form-encoded, and not every client does that.
        client, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
        expected = self.clients.get(client)
        if asked.get("grant_type") != ["client_credentials"] or expected not in (secret, unquote_plus(secret)):
            return 401, {"error": "invalid_client", "error_description": "unknown client, or another secret"}
        now = int(time.time())
        claims = {"sub": client, "aud": AUDIENCE, "iat": now, "exp": now + _LASTS, "scope": asked.get("scope", [""])[0]}
        token = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "1"})
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": _LASTS}

    def _serve(self, context: ssl.SSLContext | None) -> ThreadingHTTPServer:
        provider = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send("")

            def do_POST(self) -> None:
                self._send(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())

            def _send(self, body: str) -> None:
                status, answer = provider.answer(self.path, self.headers.get("Authorization", ""), body)
                text = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: object) -> None:
                """Requests get no log line."""

        server = ThreadingHTTPServer((LOOPBACK, 0), Answer)
        server.daemon_threads = True
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
