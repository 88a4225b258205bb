"""LaunchSpec: how one engine is started, read from files of any kind and from what runs."""
