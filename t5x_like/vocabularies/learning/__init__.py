"""Learns a vocabulary from text."""
