"""Executes recoveries: sends archived dead letters back to their queues and keeps the records until the chunks end.

`requests` takes the request. An operation is one of four kinds, and each kind has a module:

- `archived_records`: the records below a prefix of the archive, or the records that the request names;
- `failed_chunks`: a retry. It makes the record of each failed chunk of a run from the ledger;
- `failed_tasks`: a retry of a run of tasks. It needs no records: the messages only refer to the tasks;
- `cancelled_run`: only resumes a cancelled run. The sweeper then sends what had been skipped.

The first three take their work in windows. A record that is taken moves to the prefix of the operation. Others are
deleted if their work is done, or moved to the failed records. Then `rounds` makes rounds, with a delay that doubles. A
round sends the messages that are not sent yet and checks the chunks of the others. When a chunk has ended, its record
is deleted or moved to the failed records. The operation is over when its prefix is empty.

After each window, one conditional write to the operation's item adds the window's counts, moves the cursor, and lists
the records to delete. Then they are deleted (`operation`). If the process dies before the write, the window is
repeated, which is idempotent. If it dies after the write, the deletions are finished first. So memory depends only on
the window's size, no record is lost, and none is counted twice.
"""
