"""Reads the records that a replica lacks, in log order, from a number on."""

from __future__ import annotations

from requite.protocols.titanic.replication import Batch
from requite.protocols.titanic.tickets import Since
from requite.storage import Damage, Log


class Tail:
    """Reads batches; continues where the last one ended, if asked for the next number.

    `end`: the number after the last synced record; later ones may be lost and their numbers reused.
    `complete_from`: from this number on, no record has been removed. A replica that lacks earlier
    ones needs a full copy, since CLOSED records may be missing.
    """

    def __init__(self, log: Log, complete_from: int) -> None:
        self.end = log.next_number
        self.complete_from = complete_from
        self._log = log
        self._reader = log.reader()
        self._at = (-1, 0, 0)  # a number, the segment that it is in, and its offset there

    def read(self, since: Since) -> Batch:
        """Return the next records, as many as fit, but at least one if there is any."""
        begins = since.begins or since.number < self.complete_from or since.number > self.end
        number = first = 0 if begins else since.number
        records: list[bytes] = []
        size = 0
        for segment, offset in self._segments(number):
            for item in self._reader.read(segment, offset):
                if isinstance(item, Damage) or item.number < number:
                    continue
                if item.number >= self.end:
                    break
                size += len(item.payload)
                if records and size > since.size_max:
                    self._at = (number, segment, item.offset)
                    return Batch(self._log.log_id, first, number, records, begins)
                records.append(bytes(item.payload))
                number = item.number + 1
                self._at = (number, segment, item.end)
        return Batch(self._log.log_id, first, self.end, records, begins, is_head=True)

    def _segments(self, number: int) -> list[tuple[int, int]]:
        """Return the segments with records from `number` on, and the offset to begin at in each."""
        numbers = [sealed.number for sealed in self._log.sealed]
        if self._log.segment not in numbers:
            numbers.append(self._log.segment)
        later = [one for one in numbers if one > number]
        before = max((one for one in numbers if one <= number), default=None)
        begin = [] if before is None else [(before, self._offset(number, before))]
        return begin + [(one, 0) for one in later]

    def _offset(self, number: int, segment: int) -> int:
        known, at, offset = self._at
        return offset if (known, at) == (number, segment) else 0
