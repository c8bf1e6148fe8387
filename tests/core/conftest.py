from hypothesis import settings

settings.register_profile("core", deadline=None)  # a shared machine stalls for longer than any example takes
settings.load_profile("core")
