"""Questions about many scenarios, all asked of the one cost model in `kvplan.core`."""
