"""What leaves this machine for a person: a program with input, a webhook, a mail. Every outcome is a value."""
