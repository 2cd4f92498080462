"""Admission: what an object becomes, and whether it may be stored, given everything else that is stored.

``Admission.review`` runs a chain of small plugins; each states what it needs to know. Objects come in
decoded and field-reviewed, and leave defaulted, normalised, validated and within quota.
"""

from __future__ import annotations

from windlass.server.admission.chain import Admission, AdmissionOptions, Reviewed
from windlass.server.admission.objects import Objects, StoreObjects

__all__ = ["Admission", "AdmissionOptions", "Objects", "Reviewed", "StoreObjects"]
