"""The pure core: facts in, numbers out. Imports the standard library and `kvplan.errors` only."""
