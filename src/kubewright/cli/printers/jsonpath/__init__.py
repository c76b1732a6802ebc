"""Kubernetes' JSONPath, a dialect of its own (client-go `util/jsonpath`): text with expressions in braces, ranges, filters, unions, slices."""
