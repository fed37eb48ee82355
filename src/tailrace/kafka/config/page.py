# ruff: noqa: E501 a row of a table in Markdown is one line
"""docs/kafka-config.md, written from the entries that the file may have."""

from __future__ import annotations

import textwrap

from tailrace.kafka.config.entries import ALIASES, ASSIGNOR, ASSIGNORS, CLIENTS, FIXED, PASSED, Passed

_HEAD = """\
# Connecting to Kafka

`--kafka-config FILE` (`TAILRACE_KAFKA_CONFIG`) says how to connect to Kafka. Every process and every command
that asks Kafka takes it. It is the file that Kafka's own tools take with `--command-config`: lines of
`name=value` in the names of Java's clients. The names of librdkafka work, too. One file serves the Python
clients, and Spark's source and sink.

A broker with TLS and passwords:

```properties
bootstrap.servers=kafka-1.example.com:9093,kafka-2.example.com:9093
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.username=movies-pipeline
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
```

The password is then in the variable `TAILRACE_KAFKA_SASL_PASSWORD`, or in the file that
`TAILRACE_KAFKA_SASL_PASSWORD_FILE` names. It may also be in the file above, as `sasl.password` or in
`sasl.jaas.config`; give it to one user alone then (`chmod 600`).

A broker that wants a certificate of its clients:

```properties
security.protocol=SSL
ssl.truststore.type=PEM
ssl.truststore.location=/etc/kafka/ca.pem
ssl.keystore.type=PEM
ssl.keystore.location=/etc/kafka/client.pem
```

An identity provider (OpenID Connect, client credentials):

```properties
security.protocol=SASL_SSL
sasl.mechanism=OAUTHBEARER
sasl.oauthbearer.token.endpoint.url=https://login.example.com/oauth2/token
sasl.oauthbearer.client.id=movies-pipeline
sasl.oauthbearer.scope=kafka
```

A line that is unknown, or that contradicts another one, is an error that names file and line, before anything
starts. So is a certificate that has expired, a key that belongs to another certificate, and a missing
password.

## Security

| Java | librdkafka | meaning |
| --- | --- | --- |
| `security.protocol` | the same | PLAINTEXT (the default), SSL, SASL_PLAINTEXT or SASL_SSL |
| `ssl.truststore.location` | `ssl.ca.location` | certificates to trust: PEM, or a PKCS12 store with `ssl.truststore.password`; by default those of the machine, and of Java |
| `ssl.truststore.certificates` | `ssl.ca.pem` | the same as text |
| `ssl.keystore.location` | `ssl.certificate.location`, `ssl.key.location` | the client's certificate with those that signed it, and its key: one PEM file, or two, or a PKCS12 store with `ssl.keystore.password` |
| `ssl.keystore.certificate.chain`, `ssl.keystore.key` | `ssl.certificate.pem`, `ssl.key.pem` | the same as text |
| `ssl.key.password` | the same | the password of the key; or `TAILRACE_KAFKA_KEY_PASSWORD`, or its file |
| `ssl.endpoint.identification.algorithm` | the same | `https` checks the host name in the broker's certificate; empty or `none` does not |
| `sasl.mechanism` | the same | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER |
| `sasl.jaas.config` | `sasl.username`, `sasl.password` | user and password; or `TAILRACE_KAFKA_SASL_PASSWORD`, or its file |
| `sasl.jaas.config` | `sasl.oauthbearer.client.id`, `sasl.oauthbearer.client.secret`, `sasl.oauthbearer.scope`, `sasl.oauthbearer.extensions` | client credentials |
| `sasl.oauthbearer.token.endpoint.url` | the same | where the identity provider gives tokens |
| `ssl.truststore.…` in `sasl.jaas.config` | `https.ca.location`, `https.ca.pem` | certificates to trust there |

Java's own stores (JKS) and Kerberos are not supported. Convert a store with `keytool -importkeystore
-srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12`.

## If a password or a certificate changes

Every two seconds, processes look whether the file, or one that it names, has changed. They read it anew and
open their connections with what it says then. A materializer leaves its consumer group and comes back; the
pipeline stops its queries and starts them again from their checkpoints. Rows stand still for some seconds.
Nothing is lost: what a query had begun is repeated with the same versions.

Files may be replaced one after the other. A new certificate beside the old key, or half a file, can't be
used: processes go on with what they have, say so in log and health, and look again. Rename a finished file
over the old one, and nobody ever sees half of it.

The order does not matter for what is lost, which is nothing, but for how long rows stand still:

- A password: change it on disk and at the brokers within seconds of each other. Connections that are open
  stay open.
- The brokers' authority: first let clients trust both, old and new, in one file. Then change the brokers'
  certificates. Then take the old one out of the file.
- A client's certificate: first let the brokers trust both authorities. Then replace the client's files.

The variables `TAILRACE_KAFKA_SASL_PASSWORD` and `TAILRACE_KAFKA_KEY_PASSWORD` can't change while a process
runs; their `…_FILE` can. `bootstrap.servers` needs a restart, and processes log that.

## If Kafka refuses a process

Each error names what to correct: the file, the user, or the right.

| refused | what it says |
| --- | --- |
| a wrong password | user, mechanism and file |
| a broker whose certificate nobody signed that the client trusts | the file of those that it trusts |
| a broker whose certificate has expired, or is for another host | the broker's address, and what to do there |
| the client's own certificate | its file |
| TLS, or a password, where the listener wants something else | the `security.protocol` that it wants |
| a missing right | the topic or the consumer group, the user, and the operation to allow |

When it starts, the pipeline and every command end with such an error. A materializer and a gateway wait.
While it runs, no process ends. Its clients go on trying to connect, and queries of the pipeline are started
again after pauses that grow to a minute, or at once if a file has changed. The log tells a refusal once, and
its end. Meanwhile `/health/ready` of pipeline and materializer is 503 with the reason. A gateway goes on
serving rows, and stays ready; the reason is under `kafka` in its `/health/ready`.

When it is corrected, everything goes on by itself.

## Other entries

They go to the clients as they are. A client without a name for one does without.
"""


def page() -> str:
    """The text of docs/kafka-config.md."""
    lines = [_HEAD, "| Java | librdkafka | clients |", "| --- | --- | --- |"]
    lines += [f"| {_name(one.java)} | {_name(one.librdkafka, one.java)} | {_clients(one)} |" for one in PASSED]
    lines += [
        "",
        _wrapped(
            f"`{ASSIGNOR}` takes {', '.join(f'`{name}`' for name in ASSIGNORS.values())}, or Java's classes. It is "
            "that of the materializers' group, which is `cooperative-sticky` by default."
        ),
        "",
        _wrapped(
            "With `acks=0` or `acks=1`, Kafka may lose what it has acknowledged when a broker fails. Rows may be lost "
            "then."
        ),
        "",
        _wrapped(
            "A producer gives up a record after five seconds, whatever `delivery.timeout.ms` says, if a client or a "
            "materializer waits for it, and never if it is an event of a feed."
        ),
        "",
        _wrapped(
            "Also understood: " + ", ".join(f"`{alias}` (`{name}`)" for alias, name in sorted(ALIASES.items())) + "."
        ),
        "",
        "## Entries that are refused",
        "",
        "| entry | because |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {why} |" for name, why in sorted(FIXED.items())]
    return "\n".join(lines) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 110, break_long_words=False, break_on_hyphens=False)


def _name(name: str, same: str = "") -> str:
    if not name:
        return ""
    return "the same" if name == same else f"`{name}`"


def _clients(one: Passed) -> str:
    return "all" if one.clients == CLIENTS else f"{', '.join(one.clients)}s"
