"""Keys, certificates, requests, pins: the certificate table, and the functions that apply it.

Files are accessed through CertificateStore only.
"""
