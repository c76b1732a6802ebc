"""`reset`: undoing on a machine what init or join did, and nothing else. Every step is tried; what fails is told at the end."""
