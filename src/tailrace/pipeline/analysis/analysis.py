"""What Spark's analysis says of an app, before anything runs: mistakes in schemas and SQL, and column types."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame, SparkSession

from tailrace.contracts.catalog import Column
from tailrace.declarations.app import App
from tailrace.declarations.checks.outputs import fits
from tailrace.declarations.checks.sources import subject_of
from tailrace.declarations.mistakes import Mistake
from tailrace.declarations.views import Changelog, Feed, View
from tailrace.pipeline.analysis.findings import Findings
from tailrace.pipeline.analysis.outputs import Described, OutputAnalysis
from tailrace.pipeline.analysis.sources import SourceAnalysis
from tailrace.pipeline.source.reading import Reading, reading
from tailrace.pipeline.source.registry_schemas import RegistrySchemas


class Analysis:
    """Finds mistakes declaration by declaration, so that one does not hide the next."""

    def __init__(self, session: SparkSession, registry_schemas: RegistrySchemas | None = None) -> None:
        self._registry_schemas = registry_schemas
        self._findings = Findings()
        self._sources = SourceAnalysis(session, self._findings)
        self._outputs = OutputAnalysis(self._sources, self._findings)
        self.described: dict[str, Described] = {}

    @property
    def mistakes(self) -> list[Mistake]:
        """The mistakes found so far."""
        return self._findings.mistakes

    @property
    def types(self) -> dict[str, tuple[Column, ...]]:
        """The columns of each output without mistakes, those of the key first."""
        return {name: (*found.key, *found.columns) for name, found in self.described.items()}

    def examine(self, app: App, told: Iterable[Mistake] = ()) -> None:
        """Analyse every topic, view and feed, except what known mistakes make impossible to plan."""
        for source in app.topics:
            self._sources.declared(reading(source, {}, self._registry_schemas), subject_of(source))
        broken = {mistake.place for mistake in told}
        for output in app.outputs:
            if fits(output):
                self._output(output, planned=output.place not in broken)

    def _output(self, output: View | Feed, *, planned: bool) -> None:
        found: list[tuple[str, Reading, DataFrame]] = []
        for alias, source in output.sources:
            if isinstance(source, Changelog) and source.view.name not in self.described:
                # The view it reads has mistakes of its own.
                return
            one = reading(source, self.types, self._registry_schemas, output.name)
            frame = self._sources.frame(one, subject_of(source))
            if frame is None:
                return
            found.append((alias, one, frame))
        described = self._outputs.examine(output, found, planned=planned)
        if described is not None:
            self.described[output.name] = described
