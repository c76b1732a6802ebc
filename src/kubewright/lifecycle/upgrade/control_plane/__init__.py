"""Replaces the static pods of one control plane: gate, backup, certificates, the phase, and the proof that they run."""
