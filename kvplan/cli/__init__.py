"""The command line: parse, call the API, hand the result to a report. No arithmetic here."""
