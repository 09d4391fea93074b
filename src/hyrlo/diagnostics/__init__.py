"""Can these data be reached, do they cover, and what will the forward pass make of them."""

from hyrlo.diagnostics.admissibility import DiagnoseConfig
from hyrlo.diagnostics.diagnosis import diagnose
from hyrlo.diagnostics.report import DiagnosisReport

__all__ = ["DiagnoseConfig", "DiagnosisReport", "diagnose"]
