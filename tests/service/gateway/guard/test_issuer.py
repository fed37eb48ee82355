"""A gateway that takes the keys of tokens from where their issuer publishes them."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from access_tokens import bearer, token
from gateway_process import GatewayProcess
from order_store import order_store
from tailrace.dev.redis_server import RedisServer


def test_keys_that_an_issuer_publishes_are_believed_also_while_it_is_away(
    redis_server: RedisServer, fresh: str, tmp_path: Path
) -> None:
    order_store(redis_server.url, fresh)
    mine = rsa.generate_private_key(65537, 2048)
    key = json.loads(RSAAlgorithm.to_jwk(mine.public_key())) | {"kid": "k1", "use": "sig"}
    published = json.dumps({"keys": [key]}).encode()

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/keys" else 302)
            self.send_header("Location", "/keys")
            self.end_headers()
            self.wfile.write(published)

        def log_message(self, *_: object) -> None:
            pass

    def signed(kid: str) -> dict[str, str]:
        claims = {"sub": "c7", "exp": time.time() + 300, "iss": "me", "aud": ["x", "tailrace"]}
        return bearer(jwt.encode(claims, mine, algorithm="RS256", headers={"kid": kid}))

    issuer = ThreadingHTTPServer(("127.0.0.1", 0), Issuer)
    threading.Thread(target=issuer.serve_forever, daemon=True).start()
    (tmp_path / "rights.json").write_text(json.dumps({"views": {"orders": {"where": "customer = {sub}"}}}))
    given = {
        "jwt-algorithm": "RS256",
        "jwks": f"http://127.0.0.1:{issuer.server_port}/keys",
        "jwt-issuer": "me",
        "jwt-audience": "tailrace",
        "rights": str(tmp_path / "rights.json"),
    }
    gateway = GatewayProcess(tmp_path, redis_server.url, fresh, given)
    try:
        gateway.wait_ready()
        assert gateway.get("/views/orders/1", **signed("k1")).status_code == 200
        assert gateway.get("/views/orders/2", **signed("k1")).status_code == 404
        assert gateway.get("/views/orders/1", **signed("k2")).json()["error"] == "token not believed"
        assert gateway.get("/views/orders/1", **bearer(token())).json()["error"] == "token not believed"
        issuer.shutdown()
        issuer.server_close()
        assert gateway.get("/views/orders/1", **signed("k1")).status_code == 200
        assert "keys=fetched number=1" in gateway.log.read_text()
    finally:
        gateway.close()
