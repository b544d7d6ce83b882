"""One file per command: what it is for (`ABOUT`), its options (`add_options`), one call into the library (`run`).

Options are parsed before anything heavy is imported, so that `vonet --help` answers at once.
"""
