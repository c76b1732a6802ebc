"""Replacing the static pods of one control plane: gate, backup, certificates, the phase itself, and the proof that the components run."""
