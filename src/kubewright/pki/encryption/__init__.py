"""Encryption of small values and of files (AES-GCM), and of secrets to an RSA key (OAEP)."""
