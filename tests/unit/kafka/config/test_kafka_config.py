"""The file of `--kafka-config`: one for both clients; what can't be used is one line with file and line number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from tailrace.errors import SettingError
from tailrace.kafka.config.entries import ADMIN, CONSUMER, FIXED, PRODUCER
from tailrace.kafka.config.jaas import read_jaas
from tailrace.kafka.config.kafka_config import KafkaConfig
from tailrace.kafka.config.page import page
from tailrace.kafka.config.security import Secrets

DOCUMENT = Path(__file__).parents[4] / "docs" / "kafka-config.md"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SASL = "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
URL = "sasl.oauthbearer.token.endpoint.url=https://login.test/token\n"


class Certificates:
    """A certificate of its own authority, and its key, in a directory."""

    def __init__(self, directory: Path, *, days: int = 1) -> None:
        self.directory = directory
        self.key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "movies")])
        now = datetime.now(UTC)
        self.certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(self.key.public_key())
            .serial_number(1)
            .not_valid_before(now - timedelta(days=9))
            .not_valid_after(now + timedelta(days=days))
            .sign(self.key, hashes.SHA256())
        )
        self.chain_pem = self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, form: PrivateFormat = PrivateFormat.PKCS8, password: str = "") -> str:
        locked = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, form, locked).decode()

    def file(self, name: str, text: str | bytes) -> Path:
        path = self.directory / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path)


def read(directory: Path, text: str, secrets: Secrets | None = None) -> KafkaConfig:
    file = directory / "kafka.properties"
    file.write_text(text)
    return KafkaConfig.read(str(file), secrets or Secrets())


def refused(directory: Path, text: str, secrets: Secrets | None = None) -> str:
    """The one line of an error, without the directory."""
    with pytest.raises(SettingError) as caught:
        read(directory, text, secrets)
    said = str(caught.value)
    assert "\n" not in said
    return said.replace(f"{directory}/", "")


def test_without_a_file_clients_get_no_security_and_nothing_beside() -> None:
    assert KafkaConfig().librdkafka(ADMIN) == {"security.protocol": "PLAINTEXT"}
    assert KafkaConfig().java(CONSUMER) == ({"security.protocol": "PLAINTEXT"}, {})


@pytest.mark.parametrize(
    "login",
    [
        'sasl.username=ada\nsasl.password=a"b\\\\c d',
        f'sasl.jaas.config={SCRAM} required username="ada" password="a\\\\"b\\\\\\\\c d";',
        f"sasl.jaas.config={SCRAM} required \\\n  username=ada \\\n  password='a\"b\\\\\\\\c d';",
        f"sasl.jaas.config={SCRAM} required username=ada password='a\\\\042b\\\\134c\\\\40d';",
    ],
)
def test_a_password_is_the_same_for_both_clients_in_whose_words_it_is_given(tmp_path: Path, login: str) -> None:
    found = read(tmp_path, SASL + login)
    told = found.librdkafka(PRODUCER)
    assert (told["sasl.mechanism"], told["sasl.username"], told["sasl.password"]) == (
        "SCRAM-SHA-512",
        "ada",
        'a"b\\c d',
    )
    open_, kept = found.java(PRODUCER)
    jaas = read_jaas(kept["sasl.jaas.config"])
    assert (jaas.module, jaas.options) == (SCRAM, {"username": "ada", "password": 'a"b\\c d'})
    assert open_ == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_a_secret_need_not_be_in_the_file(tmp_path: Path) -> None:
    found = read(tmp_path, SASL + "sasl.username=ada", Secrets(sasl="elsewhere"))
    assert found.librdkafka(ADMIN)["sasl.password"] == "elsewhere"
    assert "elsewhere" in found.java(CONSUMER)[1]["sasl.jaas.config"]


@pytest.mark.parametrize("java", [True, False])
def test_client_credentials_are_told_to_both(tmp_path: Path, certificates: Certificates, java: bool) -> None:
    authority = certificates.file("ca.pem", certificates.chain_pem)
    given = (
        f'sasl.jaas.config={OAUTH} required clientId="app" clientSecret="s3" scope="kafka" extension_cluster="c1" '
        f'ssl.truststore.type="PEM" ssl.truststore.location="{authority}";\n'
        if java
        else f"sasl.oauthbearer.method=oidc\nsasl.oauthbearer.client.id=app\nsasl.oauthbearer.client.secret=s3\n"
        f"sasl.oauthbearer.scope=kafka\nsasl.oauthbearer.extensions=cluster=c1\nhttps.ca.location={authority}\n"
    )
    found = read(tmp_path, f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{URL}{given}")
    told = found.librdkafka(ADMIN)
    names = ("method", "client.id", "client.secret", "scope", "extensions", "token.endpoint.url")
    assert [told[f"sasl.oauthbearer.{name}"] for name in names] == [
        "oidc",
        "app",
        "s3",
        "kafka",
        "cluster=c1",
        "https://login.test/token",
    ]
    assert told["https.ca.pem"] == certificates.chain_pem
    jaas = read_jaas(found.java(ADMIN)[1]["sasl.jaas.config"])
    assert jaas.options == {
        "clientId": "app",
        "clientSecret": "s3",
        "scope": "kafka",
        "extension_cluster": "c1",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": certificates.chain_pem,
    }


@pytest.mark.parametrize(
    "given",
    [
        "ssl.keystore.type=PEM\nssl.keystore.location={both}",
        "ssl.certificate.location={chain}\nssl.key.location={key}",
        "ssl.certificate.location={chain}\nssl.key.location={old}",
        "ssl.certificate.location={chain}\nssl.key.location={locked}\nssl.key.password=pw",
        "ssl.keystore.type=PKCS12\nssl.keystore.location={store}\nssl.keystore.password=pw",
        "ssl.keystore.certificate.chain={chain_text}\nssl.keystore.key={key_text}",
    ],
)
def test_both_clients_show_the_same_certificate_in_whatever_form_it_is_given(
    tmp_path: Path, certificates: Certificates, given: str
) -> None:
    chain, key = certificates.chain_pem, certificates.key_pem()
    store = pkcs12.serialize_key_and_certificates(
        b"movies", certificates.key, certificates.certificate, None, BestAvailableEncryption(b"pw")
    )
    text = given.format(
        both=certificates.file("both.pem", key + chain),
        chain=certificates.file("chain.pem", chain),
        key=certificates.file("key.pem", key),
        old=certificates.file("old.pem", certificates.key_pem(PrivateFormat.TraditionalOpenSSL)),
        locked=certificates.file("locked.pem", certificates.key_pem(password="pw")),
        store=certificates.file("store.p12", store),
        chain_text=chain.replace("\n", "\\n"),
        key_text=key.replace("\n", " \\\n  "),
    )
    found = read(tmp_path, f"security.protocol=SSL\nssl.ca.location={tmp_path}/chain.pem\n{text}")
    told = found.librdkafka(CONSUMER)
    assert (told["ssl.ca.pem"], told["ssl.certificate.pem"], told["ssl.key.pem"]) == (chain, chain, key)
    open_, kept = found.java(CONSUMER)
    assert kept == {
        "ssl.truststore.certificates": chain,
        "ssl.keystore.certificate.chain": chain,
        "ssl.keystore.key": key,
    }
    assert open_["ssl.truststore.type"] == open_["ssl.keystore.type"] == "PEM"


def test_certificates_to_trust_may_be_in_a_store_of_java(tmp_path: Path, certificates: Certificates) -> None:
    store = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(certificates.certificate, b"ca")], BestAvailableEncryption(b"changeit")
    )
    file = certificates.file("trust.jks", store)
    found = read(tmp_path, f"security.protocol=SSL\nssl.truststore.location={file}\nssl.truststore.password=changeit\n")
    assert found.librdkafka(ADMIN)["ssl.ca.pem"] == certificates.chain_pem


def test_other_settings_go_to_the_clients_that_know_them(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "client.rack=a\nlinger.ms=7\nbuffer.memory=2097152\nrequest.timeout.ms=9000\nmax.poll.records=5\n"
        "compression.type=ZSTD\nmax.in.flight=3\nqueue.buffering.max.ms=7\n"
        "partition.assignment.strategy=org.apache.kafka.clients.consumer.RangeAssignor\n",
    )
    assert found.java(CONSUMER)[0] == {
        "security.protocol": "PLAINTEXT",
        "client.rack": "a",
        "request.timeout.ms": "9000",
        "max.poll.records": "5",
    }
    assert found.java(PRODUCER)[0] == {
        "security.protocol": "PLAINTEXT",
        "linger.ms": "7",
        "buffer.memory": "2097152",
        "request.timeout.ms": "9000",
        "compression.type": "zstd",
        "max.in.flight.requests.per.connection": "3",
    }
    assert found.librdkafka(PRODUCER) == {
        "security.protocol": "PLAINTEXT",
        "linger.ms": "7",
        "queue.buffering.max.kbytes": "2048",
        "socket.timeout.ms": "9000",
        "compression.type": "zstd",
        "max.in.flight.requests.per.connection": "3",
    }
    assert found.librdkafka(CONSUMER) == {
        "security.protocol": "PLAINTEXT",
        "client.rack": "a",
        "socket.timeout.ms": "9000",
        "partition.assignment.strategy": "range",
    }
    assert not read(tmp_path, "acks=1").idempotent


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("security.protocol=TLS", "kafka.properties:1: security.protocol: expected PLAINTEXT, SSL, SASL_PLAINTEXT or"),
        ("\nssl.ca.location=x", "kafka.properties:2: ssl.ca.location: expected security.protocol=SSL or SASL_SSL with"),
        ("sasl.username=x", "sasl.username: expected security.protocol=SASL_PLAINTEXT or SASL_SSL with it, got PLAIN"),
        ("security.protocol=SASL_SSL", "kafka.properties: expected the mechanism PLAIN,"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=GSSAPI", "OAUTHBEARER, got 'GSSAPI'"),
        (SASL + "sasl.kerberos.service.name=kafka", "kafka.properties:3: sasl.kerberos.service.name: .* got Kerberos"),
        (SASL, "sasl.mechanism: expected a user, got none: set sasl.username"),
        (SASL + "sasl.username=ada", "expected a password, got none: set TAILRACE_KAFKA_SASL_PASSWORD"),
        (SASL + f'sasl.jaas.config={PLAIN} required username="ada";', "3: sasl.jaas.config: expected .*Scram"),
        (SASL + "sasl.jaas.config=x", "3: sasl.jaas.config: expected a login module"),
        (SASL + f'sasl.jaas.config={SCRAM} required username="a;', "expected an end of each quoted text"),
        (SASL + f'sasl.username=b\nsasl.jaas.config={SCRAM} required username="a" password="p";', "as in line 4"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url"),
        (f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{URL}", "expected a client id, got none"),
        ("linger.ms=1\nqueue.buffering.max.ms=2", "2: queue.buffering.max.ms: expected the same as in line 1, linger"),
        ("fetch.max.wait.ms=1\nfetch.wait.max.ms=2", "expected the same as in line 1"),
        ("linger.ms=soon", "kafka.properties:1: linger.ms: expected a whole number, got 'soon'"),
        ("acks=2", "acks: expected all or -1 or 0 or 1, got '2'"),
        ("max.in.flight.requests.per.connection=6", "expected 5 at most"),
        ("# a comment\nlinger.mss=1", "kafka.properties:2: linger.mss: .* is linger.ms meant?"),
        ("ssl.some.thing.else=1", "expected security.protocol=SSL"),
        ("socket.nagle=1", "kafka.properties:1: socket.nagle: expected an entry that docs/kafka-config.md lists"),
        (
            "linger.ms=1\nMIGHAgEAMBMGByqGSM49",
            "kafka.properties:2: expected an entry .*does the line before end without",
        ),
        ("partition.assignment.strategy=lucky", "expected range, roundrobin, cooperative-sticky"),
        ("partition.assignment.strategy=range,cooperative-sticky", "cooperative-sticky alone"),
        ("security.protocol=SSL\nssl.ca.location=/nowhere/ca.pem", "2: ssl.ca.location: /nowhere/ca.pem: expected a f"),
        ("security.protocol=SSL\nssl.truststore.type=PEM", "expected ssl.truststore.location with it, got none"),
        ("security.protocol=SSL\nssl.key.location=k.pem", "expected a certificate: ssl.certificate.location with it"),
        ("security.protocol=SSL\nssl.endpoint.identification.algorithm=x", "expected https, or none"),
    ],
)
def test_what_cannot_be_used_is_one_line_that_says_where(tmp_path: Path, text: str, says: str) -> None:
    import re

    assert re.search(says, refused(tmp_path, text))


@pytest.mark.parametrize("name", sorted(FIXED))
def test_an_entry_that_a_promise_depends_on_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    protocol = "security.protocol=SSL\n" if "ssl." in name else ""
    assert f"{name}: expected no such entry, because " in refused(tmp_path, f"{protocol}{name}=x")


def test_certificates_that_cannot_be_used_are_told_before_anything_starts(tmp_path: Path) -> None:
    good, other = Certificates(tmp_path), Certificates(tmp_path)
    expired = Certificates(tmp_path, days=-1)
    chain = good.file("chain.pem", good.chain_pem)
    tls = "security.protocol=SSL\n"

    def pair(certificate: Certificates, key: str) -> str:
        certificate.file("c.pem", certificate.chain_pem)
        certificate.file("k.pem", key)
        return refused(tmp_path, f"{tls}ssl.certificate.location={tmp_path}/c.pem\nssl.key.location={tmp_path}/k.pem")

    assert "k.pem: expected the key of the certificate, got that of another one" in pair(good, other.key_pem())
    assert "but the certificate of CN=movies expired on" in pair(expired, expired.key_pem())
    assert "expected the password of the key, which is encrypted, got none" in pair(good, good.key_pem(password="p"))
    assert "expected a private key as PEM, got none" in pair(good, "nothing")
    jks = good.file("store.jks", b"\xfe\xed\xfe\xed\x00")
    assert "keytool -importkeystore" in refused(tmp_path, f"{tls}ssl.keystore.location={jks}")
    assert "expected PEM certificates" in refused(tmp_path, f"{tls}ssl.truststore.location={good.file('x', b'0')}")
    told = refused(tmp_path, f"{tls}ssl.keystore.location={chain}\nssl.certificate.location={chain}")
    assert "expected the same as in line 2, ssl.keystore.location" in told


def test_no_error_and_no_repr_holds_a_secret(tmp_path: Path, certificates: Certificates) -> None:
    secret = "canary-of-the-password"
    wrong = (
        f"{SASL}sasl.password={secret}\n",
        f"{SASL}sasl.username=a\nsasl.password={secret}\nlinger.mss=1",
        f"{SASL}sasl.jaas.config={SCRAM} required username=a password={secret}",
        f'{SASL}sasl.jaas.config={SCRAM} required username="a" password="{secret}" other=1;',
        f"{SASL}sasl.username=a\nsasl.password={secret}\nsasl.jaas.config={SCRAM} required username=a password=b;",
        f"security.protocol=SSL\nssl.keystore.location={tmp_path}/kafka.properties\nssl.keystore.password={secret}",
        f"security.protocol=SSL\nssl.ca.location=-----BEGIN PRIVATE KEY-----{secret}",
        f"{SASL}sasl.jaas.config={SCRAM} required username=a password=not quoted={secret};",
        f"security.protocol=SASL_SSL\nsasl.mechanism=OAUTHBEARER\n{URL.replace('://', f'://app:{secret}@')}",
        # Lines that do not end with a backslash, and a file that holds a password alone.
        f"linger.ms=1\n{secret}",
        f"linger.ms=1\n{secret}=\n{secret}=",
    )
    for text in wrong:
        assert secret not in refused(tmp_path, text)
    assert secret not in refused(tmp_path, f"{SASL}sasl.username=a\nsasl.password=b", Secrets(sasl=secret))
    file = certificates.file("both.pem", certificates.key_pem() + certificates.chain_pem)
    text = f"{SASL}sasl.username=a\nsasl.password={secret}\nssl.keystore.location={file}\nssl.ca.location={file}"
    told = repr(read(tmp_path, text))
    assert secret not in told
    assert "PRIVATE KEY" not in told


def test_the_page_is_the_table() -> None:
    assert DOCUMENT.read_text() == page(), "run scripts/document-settings"
