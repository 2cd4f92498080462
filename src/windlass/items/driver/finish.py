"""End of a batch: outputs are written whole, in the order of the input."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from windlass.items import object_store
from windlass.items.admission import INVALID_ROW
from windlass.items.ledger.changes import ItemState
from windlass.items.ledger.database import LedgerFile
from windlass.items.ledger.journal import RowJournal
from windlass.items.outputs import columns_of, encode_row, error_row, write_outputs, write_parquet
from windlass.items.places import Places, unsendable
from windlass.items.rows import DUPLICATE_ID
from windlass.items.spec import BatchSpec

_LOW = b'"quality":"low"'


class Outputs:
    """Rows of a batch that has ended."""

    def __init__(self, batch: BatchSpec, places: Places, ledger: LedgerFile, journal: RowJournal) -> None:
        self._batch, self._places = batch, places
        self._ledger, self._journal = ledger, journal
        quality = batch.outputs.quality
        self._branches = quality is not None and quality.on_low == "Branch"

    def write(self) -> None:
        """Write all output files. Raises ``OSError``; then the earlier files are untouched.

        Raises :class:`PlaceError` if an object store does not take them.
        """
        self._write(self._places.output, lambda: self._rows(lambda row: not self._low(row)))
        if self._branches:
            self._write(self._places.branch, lambda: self._rows(self._low, errors=False))
        dead = self._batch.items.dead_letter_path
        if dead:
            self._write(Path(dead), self._errors)
        if self._places.remote:
            self._send(self._places.output, self._places.remote)
            if self._branches:
                self._send(self._places.branch, self._places.remote_branch)

    @staticmethod
    def _send(path: Path, url: str) -> None:
        try:
            object_store.send(path, url)
        except object_store.ObjectError as error:
            raise unsendable(url, error) from None

    def _write(self, path: object, rows: Callable[[], Iterator[bytes]]) -> None:
        target = Path(str(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        format = self._batch.outputs.format
        if format == "parquet":
            write_parquet(target, rows)
            return
        columns = columns_of(rows()) if format == "csv" else ()
        write_outputs(target, format, rows(), columns)

    def _low(self, row: bytes) -> bool:
        return self._branches and row.endswith(_LOW + b"}")

    def _rows(self, wanted: Callable[[bytes], bool], *, errors: bool = True) -> Iterator[bytes]:
        view = self._journal.view()
        letters = self._errors() if errors else iter(())
        for _, state, place, length in self._ledger.rows():
            if state == ItemState.DONE and length:
                row = view[place : place + length]
                if wanted(row):
                    yield row
            elif state == ItemState.DEAD and errors:
                yield next(letters)
        if errors:
            for place, length in self._ledger.extras():
                yield view[place : place + length]

    def _errors(self) -> Iterator[bytes]:
        view = self._journal.view()
        for letter in self._ledger.dead_letters():
            if letter.length:
                yield view[letter.place : letter.place + letter.length]
            else:
                yield encode_row(error_row(letter))


def first_invalid(ledger: LedgerFile) -> str:
    """Return the first row that is not valid, as the end of a message."""
    found = next((one for one in ledger.dead_letters() if one.reason == INVALID_ROW), None)
    if found is None:
        return ""
    remedy = "; ids must be unique: --id names their column" if found.message.startswith(DUPLICATE_ID) else ""
    return f"; the first is {found.id}: {found.message}{remedy}"
