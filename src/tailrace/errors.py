"""Everything Tailrace raises on purpose.

    TailraceError
    ├── LoadingError          "module:app" could not be turned into an App
    ├── DeclarationError      the declared app has mistakes; `.mistakes` lists them with file and line
    ├── SettingError          a flag or a TAILRACE_… variable has a value that can't be used
    ├── DefinitionChanged     a view was declared differently from the build its checkpoint belongs to
    ├── CheckpointInUse       another pipeline holds the checkpoint
    ├── TooFewSlots           a Spark cluster can't run all tasks of the app at once
    ├── SparkDied             the JVM of the pipeline has ended by itself
    ├── Unreachable           Kafka, Redis or the schema registry did not answer in time
    ├── RegistryError         the schema registry refused, or its answer is not what the app needs
    │   └── SchemaRefused     a schema that it holds can't be used to read records
    ├── TopicError            a Kafka topic is not what the app needs
    ├── CatalogError          the app's catalog topic holds what can't be read
    │   └── NewerFormat       a newer version of Tailrace has written it
    ├── InstallError          Java, Redis or a jar that `tailrace dev` needs is missing or damaged
    └── PartDied              a process started by `tailrace dev` ended by itself

The text of each says what was expected, what came, and what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.declarations.mistakes import Mistake


class TailraceError(Exception):
    """Anything that a user can fix; the text says how. The CLI prints it without a traceback."""


class LoadingError(TailraceError):
    """Fix the `module:app` argument, or the module that it names."""


class DeclarationError(TailraceError):
    """Fix the lines that the mistakes name; `tailrace check` lists them again."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(str(mistake) for mistake in self.mistakes))


class SettingError(TailraceError):
    """Fix the flag or the environment variable that the text names."""


class DefinitionChanged(TailraceError):
    """Give the changed view a new name, restore its old definition, or start empty."""


class CheckpointInUse(TailraceError):
    """Stop the other pipeline, or give this one another checkpoint directory."""


class TooFewSlots(TailraceError):
    """Give the cluster more cores, or the app fewer partitions or views in real time."""


class SparkDied(TailraceError):
    """Start the pipeline again: it continues from its checkpoint. The log before this line may say why it ended."""


class Unreachable(TailraceError):
    """Start the service, or correct the address that the text names."""


class RegistryError(TailraceError):
    """Correct the URL of the schema registry, or what is registered there, as the text says."""


class SchemaRefused(RegistryError):
    """Register a schema of the kind that the text names; records written with this one are malformed."""


class TopicError(TailraceError):
    """Correct the topic that the text names."""


class CatalogError(TailraceError, ValueError):
    """Start the pipeline, which writes the catalog anew, and see who else writes to its topic."""


class NewerFormat(CatalogError):
    """Update Tailrace."""


class InstallError(TailraceError):
    """Install what the text names."""


class PartDied(TailraceError):
    """Read the end of the log in the text; the whole log is in the file it names."""
