"""Admission of the rows of an input to a new ledger.

Rows that are not valid get an error of their own. Outputs that an earlier job left at the
same place are taken over: their items are done.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from windlass.items.context.spec import FIELD
from windlass.items.context.streams import SegmentCheck
from windlass.items.earlier import settings_of, taken_over
from windlass.items.earlier_rows import EarlierRows
from windlass.items.expressions import Evaluate, ExpressionError, compile_expression
from windlass.items.inputs import open_rows
from windlass.items.ledger.branches import branch_name
from windlass.items.ledger.changes import ItemGroup, ItemState
from windlass.items.ledger.database import VERSION, LedgerFile
from windlass.items.overlap import written_files
from windlass.items.places import Places
from windlass.items.prompts import Prompt, PromptError
from windlass.items.row_digests import NO_DIGEST, digest_of
from windlass.items.rows import EmptyInputError, Identities, Row
from windlass.items.spec import BatchSpec, GroupSettings

INVALID_ROW = "InvalidRow"
_CHUNK = 5000
"""Number of rows that are inserted at once."""
_PREFIX = 64
"""Number of characters of a prompt that are compared to put equal beginnings together."""
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}


@dataclass(slots=True)
class Admitted:
    """Counts of an admission.

    ``taken_over``: rows with an output of an earlier job. ``changed``: rows that had one, and have
    changed since. ``others``: outputs at the same place that the input has no row for.
    """

    total: int = 0
    taken_over: int = 0
    changed: int = 0
    others: int = 0
    invalid: int = 0


@dataclass(slots=True)
class _Group:
    record: ItemGroup
    weights: float = 0.0
    count: int = 0


@dataclass(slots=True)
class BatchAdmission:
    """One admission. ``progress`` is called with the number of rows so far."""

    batch: BatchSpec
    places: Places
    environment: Mapping[str, str]
    progress: Callable[[int], None] = lambda count: None
    counts: Admitted = field(default_factory=Admitted)
    _groups: dict[str, _Group] = field(default_factory=dict)
    _digests: bytearray = field(default_factory=bytearray)

    def run(self) -> Admitted:
        """Build the ledger. Raises ``InputError`` or ``OSError``."""
        earlier = EarlierRows(self.places)
        try:
            earlier.collect(self.batch, self.environment)
            ledger = LedgerFile(self.places.ledger.with_name("ledger.new"), create=True)
            try:
                self._fill(ledger, earlier)
                self._describe(ledger, earlier)
                earlier.seal()
                ledger.seal(self.places.ledger)
            finally:
                ledger.close()
        finally:
            earlier.close()
        return self.counts

    def _describe(self, ledger: LedgerFile, earlier: EarlierRows) -> None:
        """Store what is known of the whole batch, behind its items."""
        counts, places = self.counts, self.places
        ledger.add_groups(self._records())
        others = list(earlier.rest())
        counts.others = len(others)
        ledger.add_extras(others)
        ledger.add_digests(bytes(self._digests))
        ledger.add_earlier(earlier.digests())
        ledger.set_meta(version=VERSION, uid=self.batch.uid, journal_end=earlier.end, total=counts.total)
        outputs = places.remote or places.output
        record = taken_over(
            places.ledger, self.batch, counts.taken_over, outputs, counts.changed, counts.others
        )
        ledger.set_meta(settings=json.dumps(settings_of(self.batch)), taken_over=json.dumps(record))

    def _fill(self, ledger: LedgerFile, earlier: EarlierRows) -> None:
        spool = self.places.spool.with_suffix(".new")
        chunk: list[tuple[Any, ...]] = []
        with spool.open("wb", buffering=1 << 20) as stream:
            for entry, line in self._entries(earlier):
                stream.write(line)
                chunk.append(entry)
                if len(chunk) >= _CHUNK:
                    ledger.add_items(chunk)
                    self.progress(self.counts.total)
                    chunk = []
            ledger.add_items(chunk)
        spool.replace(self.places.spool)
        if not self.counts.total:
            raise EmptyInputError("the input has no row")

    def _entries(self, earlier: EarlierRows) -> Iterator[tuple[tuple[Any, ...], bytes]]:
        """Return the columns of each item and the line of its row; an empty one if it is not valid."""
        batch = self.batch
        identities = Identities(batch.input.id_field)
        check = _RowCheck(batch)
        by = compile_expression(batch.grouping.by) if batch.grouping.by else None
        weight = compile_expression(batch.grouping.weight_field) if batch.grouping.weight_field else None
        encode = msgspec.json.Encoder().encode
        written = written_files(batch, self.places, self.environment)
        for row in open_rows(batch.input, self.environment, self.places.state, written):
            name = identities.assign(row)
            group = self._group(row, by, weight)
            number = self.counts.total
            self.counts.total += 1
            digest = NO_DIGEST if row.error else digest_of(row.values)
            done = not row.error and name in earlier
            changed = done and earlier.has_changed(name, digest)
            if changed:
                earlier.drop(name)
            if not row.error and (changed or not done):
                row.error = check.error(row)
            if row.error:
                self.counts.invalid += 1
                self._digests += NO_DIGEST
                dead = (ItemState.DEAD, 0, 0, None, None, None, None, INVALID_ROW, row.error)
                yield (number, _id(row, name), group, 0, 0, *dead), b""
                continue
            self._digests += digest
            line = encode(row.values) + b"\n"
            state = (ItemState.PENDING, 0, 0, None, None, None, None, None, None)
            if changed:
                self.counts.changed += 1
            elif done:
                self.counts.taken_over += 1
                state = (ItemState.DONE, 0, 0, *earlier.take(name), None, None, None)
            yield (number, _id(row, name), group, len(line) - 1, self._order(row, len(line)), *state), line

    def _order(self, row: Row, length: int) -> int:
        """Return the key by which items of a group are processed.

        Equal models and equal beginnings of prompts are put together, then similar lengths.
        """
        values = row.values
        model, text = values.get("model"), values.get("system") or values.get("prompt")
        body = values.get("body")
        if isinstance(body, Mapping):
            model, text = body.get("model", model), body.get("prompt", text)
            values = body
        messages = values.get("messages")
        if isinstance(messages, list) and messages and isinstance(messages[0], Mapping):
            text = messages[0].get("content", text)
        key = 0
        if model or isinstance(text, str):
            prefix = text[:_PREFIX] if isinstance(text, str) and "system" not in row.values else text
            key = (zlib.crc32(str(model).encode()) >> 12) << 20
            key |= zlib.crc32(str(prefix).encode(errors="replace")) >> 12
        return key << 22 | (min(length, (1 << 22) - 1) if self.batch.batching.pack_by == "length" else 0)

    def _group(self, row: Row, by: Evaluate | None, weight: Evaluate | None) -> int:
        rule = self.batch.grouping
        name = "default" if by is None else rule.other_bucket
        if by is not None and not row.error:
            try:
                value = by(row.values)
                name = str(value) if value not in (None, "") else name
            except ExpressionError:
                pass
        found = self._groups.get(name)
        if found is None and len(self._groups) >= rule.max_groups - (rule.other_bucket not in self._groups):
            name = rule.other_bucket
            found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = _Group(ItemGroup(len(self._groups), name))
        found.count += 1
        if weight is not None and not row.error:
            try:
                found.weights += max(0.0, float(weight(row.values)))
            except (ExpressionError, TypeError, ValueError):
                found.weights += 1.0
        return found.record.number

    def _records(self) -> Iterator[ItemGroup]:
        per_group = self.batch.grouping.per_group
        default = per_group.get("*", GroupSettings())
        for name, group in self._groups.items():
            settings, record = per_group.get(name, default), group.record
            weighted = group.weights > 0 and name not in per_group
            record.weight = group.weights / group.count if weighted else settings.weight
            record.priority, record.parallelism = settings.priority, settings.parallelism
            record.deadline, record.model = settings.deadline_seconds, settings.model
            yield record
        quality = self.batch.outputs.quality
        if quality is not None and quality.branch_model:
            yield ItemGroup(len(self._groups), branch_name(quality), model=quality.branch_model)


def _id(row: Row, name: str) -> str | int:
    value = row.values.get("id")
    known = isinstance(value, int) and not isinstance(value, bool) and str(value) == name
    return value if known and abs(value) < 1 << 63 else name  # type: ignore[return-value,operator]


class _RowCheck:
    """Checks of rows that need no worker: columns of the prompt, and the item schema."""

    def __init__(self, batch: BatchSpec) -> None:
        self._prompt = Prompt(batch.input.prompt) if batch.input.prompt else None
        self._segments = SegmentCheck(batch.context) if batch.context is not None else None
        schema = batch.input.item_schema
        self._required = tuple(schema.get("required") or ())
        self._types = {
            name: (str(rule["type"]), _TYPES[rule["type"]])
            for name, rule in (schema.get("properties") or {}).items()
            if isinstance(rule, Mapping) and rule.get("type") in _TYPES
        }

    def error(self, row: Row) -> str:
        """Return what is wrong with a row; empty if nothing is."""
        for name in self._required:
            if name not in row.values:
                return f"the field {name!r} is missing: spec.input.itemSchema requires it"
        for name, (word, types) in self._types.items():
            value = row.values.get(name)
            wrong = not isinstance(value, types) or (isinstance(value, bool) and word != "boolean")
            if value is not None and wrong:
                return f"the field {name!r} is {value!r}: spec.input.itemSchema wants the type {word}"
        if self._segments is not None and (problem := self._segments.error(row.values)):
            return problem
        if self._prompt is not None:
            values = row.values if self._segments is None else {**row.values, FIELD: {"text": ""}}
            try:
                self._prompt.render(values)
            except PromptError as error:
                return str(error)
        return ""
