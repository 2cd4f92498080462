"""The nouns: kinds, quantities, selectors, defaults, validation, reasons. No I/O."""
