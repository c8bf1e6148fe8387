"""Measurements in and out: records, validation against them, and what an engine's start-up log says."""
