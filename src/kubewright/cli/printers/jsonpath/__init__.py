"""Kubernetes' dialect of JSONPath (client-go `util/jsonpath`): text with expressions in braces, ranges, filters, unions, slices."""
