"""What serves an engine on and on, to others and here, without a screen."""
