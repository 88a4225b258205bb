"""The front end without a screen: snapshots as text or JSON, and questions on a plain terminal."""
