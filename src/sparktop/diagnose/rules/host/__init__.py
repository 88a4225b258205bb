"""Host: driver, disks, desktop, kernel log, blind spots."""
