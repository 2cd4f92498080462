"""Print products of a shop as CSV: python products.py NUMBER > products.csv. The categories come mixed."""

import csv
import random
import sys

KINDS = {
    "kitchen": ("pan", "kettle", "bread knife", "cutting board", "teapot"),
    "garden": ("watering can", "rake", "bird house", "hammock", "lantern"),
    "sport": ("yoga mat", "climbing rope", "tennis racket", "bike bell", "water bottle"),
    "office": ("desk lamp", "notebook", "fountain pen", "monitor stand", "paper tray"),
}
COLOURS = ("red", "blue", "black", "white", "green", "copper")
MATERIALS = ("steel", "wood", "bamboo", "cotton", "glass", "cork")

chance = random.Random(7)
table = csv.writer(sys.stdout, lineterminator="\n")
table.writerow(("sku", "name", "category", "colour", "material"))
for number in range(1, int(sys.argv[1]) + 1):
    category = chance.choice(list(KINDS))
    table.writerow(
        (
            f"S{number:05}",
            chance.choice(KINDS[category]),
            category,
            chance.choice(COLOURS),
            chance.choice(MATERIALS),
        )
    )
