"""The rules of Rowlock as plain values and pure functions: no I/O, no clock, no SQL."""
