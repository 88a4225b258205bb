"""Kernel log: lines, Xids, incidents."""
