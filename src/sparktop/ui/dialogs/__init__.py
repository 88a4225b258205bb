"""Dialogs and pages as building blocks."""
