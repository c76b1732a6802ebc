"""Clusters of whole machines: their documents, and starting, inspecting and removing them. Creating and removing needs root."""
