"""Certificate signing requests (PKCS#10): creating, parsing, checking and signing them."""
