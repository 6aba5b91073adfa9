"""What the pytest plugin does: limits of a test, the recording of it, and the verdict."""
