"""From settings to access: what tokens must be, keys, rights, limits. Files are read here, when the gateway starts.

Secrets come from a file or a variable. No flag takes one: every user of a machine sees the flags of a process.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from tailrace.access.fetching import fetcher
from tailrace.access.issuing import ALGORITHM, Issuer
from tailrace.access.keys import ALGORITHMS, Keys, OneKey, PublishedKeys, read_key
from tailrace.access.limits import Limits
from tailrace.access.rights import Document, RightsError, read_documents
from tailrace.access.tokens import Terms, Tokens
from tailrace.errors import SettingError
from tailrace.logs import shown_path
from tailrace.settings import Settings

log = logging.getLogger(__name__)


def read_tokens(settings: Settings, *, loopback: bool) -> Tokens | None:
    """The verifier of tokens; None if access is off. Raises SettingError for a setting that can't be used."""
    access = settings.text("access")
    if access == "off" or (not access and loopback and not _asked(settings)):
        if not loopback:
            log.warning("access=off host=%s: everyone who reaches this address sees everything", settings.text("host"))
        return None
    if not access and not _asked(settings):
        raise SettingError(
            f"--host: expected 127.0.0.1 while access is not configured, got {settings.text('host')!r}; set "
            "--jwt-algorithm with --jwt-key or --jwks, or, on a network where everyone may see everything, --access off"
        )
    return Tokens(_terms(settings), _keys(settings))


def read_issuer(settings: Settings, usual: Path) -> Issuer:
    """What signs tokens for a gateway with these settings. Raises SettingError.

    usual: where the secret is if no setting says it.
    """
    algorithm = settings.text("jwt-algorithm")
    if algorithm not in ("", ALGORITHM):
        raise SettingError(
            f"--jwt-algorithm: expected {ALGORITHM}, got {algorithm}, of which a gateway has no key to sign with"
        )
    path, secret = settings.text("jwt-key"), settings.text("jwt-secret")
    if path and secret:
        raise SettingError("--jwt-key: expected one of --jwt-key and the variable TAILRACE_JWT_SECRET, got both")
    if not path and not secret and not usual.exists():
        raise SettingError(
            f"--jwt-key: expected the secret of a gateway, got none, and none in {usual}: start "
            "`tailrace dev --secure`, which makes one, name its directory with --data, or name the file with --jwt-key"
        )
    named = path or str(usual)
    data = secret.encode() if secret else _file("--jwt-key", named, shown_path(named) if path else repr(named))
    return Issuer(
        read_key(data, ALGORITHM, "TAILRACE_JWT_SECRET" if secret else named),
        settings.text("jwt-issuer"),
        settings.text("jwt-audience"),
        settings.text("rights-claim"),
    )


def read_limits(settings: Settings) -> Limits:
    names = list(Limits.__dataclass_fields__)
    return Limits(**{name: settings.number("limit-" + name.replace("_", "-")) for name in names})


def _asked(settings: Settings) -> bool:
    return any(settings.text(name) for name in ("jwt-algorithm", "jwt-key", "jwt-secret", "jwks"))


def _terms(settings: Settings) -> Terms:
    algorithm = settings.text("jwt-algorithm")
    if algorithm not in ALGORITHMS:
        raise SettingError(f"--jwt-algorithm: expected one of {', '.join(ALGORITHMS)}, got {algorithm or 'none'}")
    issuer, audience = settings.text("jwt-issuer"), settings.text("jwt-audience")
    if settings.text("jwks") and not (issuer and audience):
        raise SettingError(
            "--jwks: expected --jwt-issuer and --jwt-audience with it, got "
            f"{'no issuer' if not issuer else 'no audience'}; "
            "an issuer that publishes keys issues tokens for others, too"
        )
    rights = settings.text("rights")
    return Terms(
        algorithm=algorithm,
        issuer=issuer,
        audience=audience,
        leeway=settings.seconds("jwt-leeway"),
        documents=_documents(rights) if rights else None,
        rights_claim=settings.text("rights-claim"),
    )


def _keys(settings: Settings) -> Keys:
    algorithm = settings.text("jwt-algorithm")
    given = [name for name in ("jwt-key", "jwt-secret", "jwks") if settings.text(name)]
    if len(given) != 1:
        raise SettingError(
            "--jwt-key: expected one of --jwt-key, --jwks and the variable TAILRACE_JWT_SECRET, got "
            + (" and ".join(given) or "none")
        )
    if given == ["jwks"]:
        if algorithm == "HS256":
            raise SettingError("--jwks: expected --jwt-algorithm RS256 or ES256 with it, got HS256")
        url = settings.text("jwks")
        fetch = fetcher(url)
        if not url.startswith("https:"):
            log.warning("keys=unprotected: --jwks is no https URL, so anyone on the way can replace the keys")
        return PublishedKeys(fetch, algorithm)
    if given == ["jwt-secret"]:
        return OneKey(read_key(settings.text("jwt-secret").encode(), algorithm, "TAILRACE_JWT_SECRET"))
    return OneKey(
        read_key(_file("--jwt-key", path := settings.text("jwt-key"), shown_path(path)), algorithm, "--jwt-key")
    )


def _documents(path: str) -> tuple[Document, ...]:
    try:
        return read_documents(json.loads(_file("--rights", path, repr(path)), object_pairs_hook=_once))
    except RightsError as error:
        raise SettingError(f"--rights: {path}: {error}") from None
    except ValueError as error:
        raise SettingError(f"--rights: expected JSON in {path}, got: {error}") from None


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object. Raises RightsError if a name occurs twice, because only one could count."""
    held = dict(pairs)
    if len(held) < len(pairs):
        twice = next(name for n, (name, _) in enumerate(pairs) if name in dict(pairs[:n]))
        raise RightsError(f"expected every name once in an object, got {twice!r} twice")
    return held


def _file(flag: str, path: str, shown: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"{flag}: expected a file that can be read, got {shown}: {error.strerror}") from None
