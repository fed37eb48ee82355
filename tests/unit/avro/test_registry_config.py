"""What `--registry` and the file of `--registry-config` say: what can't be used is one line, and no text is secret."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from tailrace.avro.registry_config import RegistryConfig
from tailrace.errors import TailraceError
from tailrace.settings import Settings

URL = "schema.registry.url=https://registry.test:8081/api"
SECRET = "c4nary"


def read(directory: Path, *lines: str, **variables: str) -> RegistryConfig | None:
    environment = {f"TAILRACE_REGISTRY{name}": value for name, value in variables.items()}
    if lines:
        file = directory / "registry.properties"
        file.write_text("\n".join(lines))
        environment["TAILRACE_REGISTRY_CONFIG"] = str(file)
    return RegistryConfig.of(Settings.read(Namespace(), environment))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["basic.auth.user.info=ann:c4nary"], "registry.properties: expected schema.registry.url"),
        ([URL, "shema.registry.url=c4nary"], ":2: shema.registry.url: .*is schema.registry.url meant"),
        ([URL, "url=https://other.test"], ":2: url: expected the same as in line 1"),
        (["url=registry:8081"], ":1: url: expected one URL"),
        (["url=https://one.test,https://two.test"], ":1: url: expected one URL"),
        ([URL.replace("https", "http"), "ssl.ca.location=ca.pem"], ":2: ssl.ca.location: expected an https URL"),
        ([URL, "", "ssl.ca.location=/nowhere.pem"], ":3: ssl.ca.location: /nowhere.pem: expected a file"),
        ([URL, "ssl.certificate.location=a.pem"], ":2: .*expected its key"),
        ([URL, "basic.auth.user.info=ann:c4nary", "bearer.auth.token=c4nary"], ":3: .*expected a user or a token"),
        ([URL.replace("://", "://ann:c4nary@"), "bearer.auth.token=c4nary"], ":2: .*a user in the URL, too"),
        ([URL.replace("://", "://ann:c4nary@"), "basic.auth.user.info=ann:c4nary"], ":2: .*user in one place"),
        ([URL, "basic.auth.user.info=ann"], ":2: .*expected a password.*TAILRACE_REGISTRY_PASSWORD"),
        ([URL, "basic.auth.user.info=:c4nary"], ":2: .*expected user:password"),
        ([URL, "basic.auth.credentials.source=USER_INFO"], ":2: .*basic.auth.user.info=user:password with it"),
        ([URL, "basic.auth.credentials.source=URL"], ":2: .*expected a user in the URL"),
        ([URL, "basic.auth.credentials.source=SASL_INHERIT"], ":2: .*expected USER_INFO or URL, got 'SASL_INHERIT'"),
        ([URL, "bearer.auth.credentials.source=OAUTHBEARER"], ":2: .*expected STATIC_TOKEN, got 'OAUTHBEARER'"),
        ([URL, "basic.auth.credentials.source=ann:c4nary"], ":2: .*expected USER_INFO or URL, got another text"),
        ([URL, "bearer.auth.credentials.source=c4nary"], ":2: .*expected STATIC_TOKEN, got another text"),
        ([URL, "c4nary"], ":2: expected an entry that docs/sources.md lists"),
        ([URL, "bearer.auth.credentials.source=STATIC_TOKEN"], ":2: .*expected a token.*TAILRACE_REGISTRY_TOKEN"),
        ([URL, "bearer.auth.token=c4n ary"], "expected a token of ASCII"),
        ([URL, "ssl.endpoint.identification.algorithm=some"], ":2: .*expected https, or none"),
    ],
)
def test_an_entry_that_cant_be_used_is_one_line_with_file_and_line(tmp_path: Path, lines: list[str], says: str) -> None:
    with pytest.raises(TailraceError, match=says) as caught:
        read(tmp_path, *lines)
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "variables", "says"),
    [
        ([URL, "basic.auth.user.info=ann:other"], {"_PASSWORD": SECRET}, "_PASSWORD: expected the password in one"),
        ([URL, "bearer.auth.token=other"], {"_TOKEN": SECRET}, "_TOKEN: expected the token in one place"),
        ([URL, "basic.auth.user.info=ann:other"], {"_TOKEN": SECRET}, "_TOKEN: expected a user or a token"),
        ([URL], {"_PASSWORD": SECRET}, "expected a user"),
        ([URL], {"": "https://else.test"}, ":1: schema.registry.url: expected the same as --registry"),
        ([], {"_PASSWORD": SECRET}, "expected --registry or --registry-config"),
        ([], {"": "https://r.test", "_PASSWORD": SECRET}, "expected a user in --registry"),
        ([], {"": "https://ann:other@r.test", "_PASSWORD": SECRET}, "the password in one place"),
        ([], {"": "https://ann@r.test", "_TOKEN": SECRET}, "expected a user or a token"),
        ([], {"": "https://ann@r.test", "_TOKEN": SECRET, "_PASSWORD": SECRET}, "a password or a token"),
        ([], {"": "https://r.test", "_KEY_PASSWORD": SECRET}, "expected --registry-config"),
    ],
)
def test_secrets_that_contradict_each_other_or_serve_nothing_are_refused(
    tmp_path: Path, lines: list[str], variables: dict[str, str], says: str
) -> None:
    with pytest.raises(TailraceError, match=says) as caught:
        read(tmp_path, *lines, **variables)
    assert SECRET not in str(caught.value) and "\n" not in str(caught.value)


def test_no_registry_is_no_error(tmp_path: Path) -> None:
    assert read(tmp_path) is None


def test_a_configuration_shows_no_secret(tmp_path: Path) -> None:
    by_password = read(tmp_path, URL, "basic.auth.user.info=ann:c4nary")
    by_token = read(tmp_path, **{"": "https://r.test", "_TOKEN": SECRET})
    assert by_password is not None and by_token is not None
    for one, header in ((by_password, "Basic YW5uOmM0bmFyeQ=="), (by_token, "Bearer c4nary")):
        assert one.headers == {"Authorization": header}
        assert SECRET not in repr(one) and header not in repr(one)
    assert by_password.address == "https://registry.test:8081/api" and "'ann'" in by_password.who
