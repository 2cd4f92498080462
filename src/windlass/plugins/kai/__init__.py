"""Plugins with the rules of KAI Scheduler."""
