"""Keys, certificates, requests, pins: the certificate table and what keeps it true. Files are reached through the CertificateStore protocol only."""
