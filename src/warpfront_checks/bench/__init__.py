"""Timings: what operations take here, beside what the device is said to reach. Judges nothing."""
