"""Parts of the runner, which carries out steps; they import nothing of ours."""
