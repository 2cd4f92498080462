"""OpenAI's interface of files and batches; each batch runs as an AIGCJob."""
