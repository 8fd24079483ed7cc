"""Timings: the duration of operations, next to the published peak of the device. Judges nothing."""
