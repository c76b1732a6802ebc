"""Encodings of certificates and requests: PEM, DER, distinguished names and URIs, as Go reads and writes them."""
