"""Admission: defaulting, normalisation and validation of objects before they are stored.

``Admission.review`` runs a chain of small plugins. Each plugin states which stored
objects it reads.
Objects arrive decoded, with reviewed fields, and leave defaulted, normalised, validated
and within quota.
"""

from __future__ import annotations

from windlass.server.admission.chain import Admission, AdmissionOptions, Reviewed
from windlass.server.admission.objects import Objects, StoreObjects

__all__ = ["Admission", "AdmissionOptions", "Objects", "Reviewed", "StoreObjects"]
