"""Language of workflows: expressions, references and conditions. Pure."""
