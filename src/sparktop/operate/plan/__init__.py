"""Building blocks that several planners share."""
