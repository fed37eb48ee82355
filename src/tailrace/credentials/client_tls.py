"""How a client does TLS: the entries about it, which Kafka's clients and those of schema registries have in common."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.credentials import stores
from tailrace.credentials.given import GivenEntries
from tailrace.credentials.stores import Identity
from tailrace.logs import is_path
from tailrace.properties import Entry

MACHINE = "the certificates that this machine trusts"


@dataclass(frozen=True)
class ClientTls:
    """Whom a client believes, and what it shows of itself.

    `authorities` are the certificates to trust, as PEM; those of the machine if it is empty. `trusted_in` and
    `shown_in` name the files for errors.
    """

    authorities: str = field(default="", repr=False)
    trusted_in: str = MACHINE
    identity: Identity | None = None
    shown_in: str = ""
    checks_host: bool = True


def read_tls(given: GivenEntries, key_password: str | None) -> ClientTls:
    """Take the entries about TLS. Raises SettingError, with file and line, for what can't be used.

    key_password: of the client's key, if the file does not say it.
    """
    authorities, trusted_in = _authorities(given)
    identity, shown_in = _identity(given, key_password)
    entry = given.take("ssl.endpoint.identification.algorithm")
    algorithm = entry.value.strip().lower() if entry is not None else "https"
    if algorithm not in ("https", "", "none"):
        raise given.wrong(entry, f"expected https, or none to check no host name, got {algorithm!r}")
    return ClientTls(authorities, trusted_in or MACHINE, identity, shown_in, algorithm == "https")


def _authorities(given: GivenEntries) -> tuple[str, str]:
    type_ = given.take("ssl.truststore.type")
    password = given.text("ssl.truststore.password")
    file, text = (
        given.take("ssl.truststore.location", "ssl.ca.location"),
        given.take("ssl.truststore.certificates", "ssl.ca.pem"),
    )
    if file is not None and text is not None:
        raise given.contradiction(file, text)
    entry = file or text
    if entry is None:
        if type_ is not None:
            raise given.wrong(type_, "expected ssl.truststore.location with it, got none")
        return "", ""
    try:
        data = entry.value.encode() if file is None else given.read(entry.value)
        return stores.authorities(data, password), entry.value.strip() if file is not None else entry.name
    except ValueError as error:
        raise given.wrong(entry, f"{_named(file)}{error}") from None


def _identity(given: GivenEntries, key_password: str | None) -> tuple[Identity | None, str]:
    type_ = given.take("ssl.keystore.type")
    store, store_password = given.take("ssl.keystore.location"), given.text("ssl.keystore.password")
    chain_file, key_file = given.take("ssl.certificate.location"), given.take("ssl.key.location")
    chain_text = given.take("ssl.keystore.certificate.chain", "ssl.certificate.pem")
    key_text = given.take("ssl.keystore.key", "ssl.key.pem")
    password = given.text("ssl.key.password") or key_password
    chain, key = chain_file or chain_text, key_file or key_text
    if chain_file is not None and chain_text is not None:
        raise given.contradiction(chain_file, chain_text)
    if key_file is not None and key_text is not None:
        raise given.contradiction(key_file, key_text)
    if store is not None and (other := chain or key) is not None:
        raise given.contradiction(store, other)
    if store is None and (chain is None) != (key is None):
        missing = "a certificate: ssl.certificate.location" if chain is None else "its key: ssl.key.location"
        raise given.wrong(chain or key, f"expected {missing} with it, got none")
    entry = store or chain
    if entry is None:
        if type_ is not None:
            raise given.wrong(type_, "expected ssl.keystore.location with it, got none")
        return None, ""
    try:
        if store is not None:
            data = given.read(store.value)
            found = (
                stores.identity(data, data, password or store_password)
                if b"-----BEGIN " in data
                else stores.identity_of_store(data, store_password or password)
            )
            return found, store.value.strip()
        assert chain is not None and key is not None  # noqa: S101 both or none
        first = _content(given, chain, of_file=chain_file is not None)
        entry = key
        second = _content(given, key, of_file=key_file is not None)
        return stores.identity(first, second, password), chain.value.strip() if chain_file is not None else chain.name
    except ValueError as error:
        file = entry if entry in (store, chain_file, key_file) else None
        raise given.wrong(entry, f"{_named(file)}{error}") from None


def _content(given: GivenEntries, entry: Entry, *, of_file: bool) -> bytes:
    return given.read(entry.value) if of_file else entry.value.encode()


def _named(file: Entry | None) -> str:
    return f"{file.value.strip()}: " if file is not None and is_path(file.value) else ""
