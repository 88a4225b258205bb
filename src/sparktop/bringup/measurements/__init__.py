"""Checks that an action measures: what its run has found, as rows."""
