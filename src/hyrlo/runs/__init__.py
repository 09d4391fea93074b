"""Train by name, run directories, resuming, progress and plots."""
