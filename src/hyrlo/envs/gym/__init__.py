"""Gymnasium environments behind hyrlo's access models."""
