"""Engine: silent, ended, looping, misconfigured, ended by the guard."""
