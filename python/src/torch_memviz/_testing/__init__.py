"""Implements the pytest plugin: the limits of a test, its recording, and the verdict."""
