"""Actions on a machine: caches, processes, desktop, guard, reboot."""
